//! `flowspace place export`.

use super::simulate::Source;
use crate::cli::{Failure, output};
use crate::place::files::{Configuration, Form, write};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `flowspace place export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// What is exported.
    #[command(flatten)]
    pub source: Source,
    /// Form of the file.
    #[arg(long, value_enum, default_value_t = To::Xml)]
    pub to: To,
    /// The file to write; standard output if left out.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the weights too, for one iteration: ticks of each actor and tokens of each FIFO.
    #[arg(long)]
    pub weights: bool,
}

/// Forms that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// The runtime's partition XML.
    Xml,
    /// The compiler's .xcf.
    Xcf,
}

/// Writes.
///
/// # Errors
/// [`Failure`]: a file that cannot be read or written.
pub fn run(args: &ExportArgs) -> Result<i32, Failure> {
    output::check(&args.out, [args.source.file.clone()])?;
    let form = if args.to == To::Xcf { Form::Xcf } else { Form::Xml };
    // A mapping file stays what it is but for its spelling: it need not have weights.
    let configuration = match args.source.mapping()? {
        Some(read) => dress(Configuration { form, ..read }, &args.source.file.display().to_string()),
        None => {
            let (graph, cores, placement) = args.source.load()?;
            let tick = args.weights.then_some(args.source.tick);
            Configuration::of(&graph, &cores, &placement, form, tick)
        }
    };
    let text = write(&configuration).map_err(Failure::input)?;
    match &args.out {
        Some(path) => output::write(path, text)?,
        None => crate::cli::print(&text),
    }
    Ok(0)
}

/// What `.xcf` asks for and the runtime's form does not have: a name, kinds of cores, a code generator.
fn dress(mut configuration: Configuration, file: &str) -> Configuration {
    if configuration.form != Form::Xcf {
        return configuration;
    }
    configuration.network.get_or_insert_with(|| {
        let name = std::path::Path::new(file).file_stem().map(|s| s.to_string_lossy().into_owned());
        name.unwrap_or_else(|| "network".into())
    });
    for p in &mut configuration.partitions {
        p.pe.get_or_insert_with(|| "x86_64".into());
        p.scheduling.get_or_insert_with(|| "ROUND_ROBIN".into());
        p.generator.get_or_insert_with(|| "sw".into());
        p.host.get_or_insert(true);
    }
    if configuration.generators.is_empty() {
        let (id, platform) = ("sw".into(), "multicore".into());
        configuration.generators.push(crate::place::files::Generator { id, platform, parameters: Vec::new() });
    }
    configuration
}
