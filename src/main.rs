//! The `flowspace` program: parse, call the library, exit.

use clap::Parser as _;
use clap::error::ErrorKind;

/// The searches allocate much, on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let code = match flowspace::cli::Cli::try_parse() {
        Ok(cli) => flowspace::cli::run(cli),
        Err(e) => {
            let e = flowspace::cli::help::clearer(e, std::env::args().skip(1));
            let _ = e.print();
            match e.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
                _ => 1,
            }
        }
    };
    flowspace::place::metis::end_output();
    std::process::exit(code);
}
