//! The command line: one file a sub-command. `main.rs` parses, calls and exits; everything that can be tested is here.
//!
//! Exit codes: 0 done; 1 the input is wrong or has no feasible mapping; 2 some points of a study failed or are infeasible; 3
//! engines disagree (`map --all-solvers`), or a folder of parts belongs to another program or study; 4 parts of a study are missing; 5 two
//! attempts at a point proved different things; 75 stopped before the end, call it again; 130 interrupted.

/// A line on standard error. Where nobody reads it (`2>&1 | head`) it is lost, and nothing fails.
macro_rules! say {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        if !$crate::cli::embed::err(&format!("{}\n", format_args!($($what)*))) {
            let _ = writeln!(std::io::stderr(), $($what)*);
        }
    }};
}

pub mod args;
pub mod check;
pub mod embed;
mod executed;
pub mod execution;
mod execution_file;
pub mod explain;
pub mod help;
pub mod import;
pub mod inference;
pub mod interrupt;
pub mod list;
pub mod map;
pub mod money;
mod output;
pub mod pages;
pub mod parts;
pub mod place;
pub mod plot;
mod point;
pub mod present;
mod report;
mod rows;
pub mod schema;
pub mod serve;
mod serving_file;
pub mod show;
mod software;
pub mod study;
pub mod submit;
pub mod trace;
pub mod validate;

use crate::mapping::search::MapError;
use crate::spec::{Problem, Problems};
use crate::study::progress::Show;
use clap::{Parser, Subcommand};
use std::io::{self, Write};

/// Finds provably best mappings of machine-learning and HPC workloads onto systems of chips, memories and networks.
#[derive(Debug, Parser)]
#[command(name = "flowspace", version, long_version = help::version(), about, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Map one workload onto one system: the best degrees, sharding, tiles and partitions, with proof.
    Map(Box<map::MapArgs>),
    /// Serve requests that come one by one, at a rate, from users or as recorded: latency percentiles, throughput, the front of tokens/s of a user and of a chip.
    Serve(Box<serve::ServeArgs>),
    /// Place an actor graph on the cores of a chip: which actor on which core, with proof; simulate its firings; read and write the mapping
    /// files of actor runtimes.
    Place(Box<place::PlaceCommand>),
    /// Derive the figures of a plan or a placement again from its decisions, and compare.
    Check(check::CheckArgs),
    /// What binds a plan, what more of each resource would bring, and what makes an infeasible point feasible.
    Explain(explain::ExplainArgs),
    /// Studies: grids over fields of workloads and systems.
    #[command(subcommand)]
    Study(StudyCommand),
    /// Redraw figures from the results of a study, or draw any two columns of a CSV.
    Plot(plot::PlotArgs),
    /// Read files of other tools into ours.
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// List the catalogue that the program carries: chips, memories, links, stacks, systems, workloads, studies, with main figures and
    /// validated error. Their names stand for files: --system h100-dgx-8, `chip: h100`, study run quickstart.
    List(list::ListArgs),
    /// Print a file of the catalogue, to copy and change: flowspace show h100-dgx-8 > my.yaml.
    Show(show::ShowArgs),
    /// Print the JSON Schema of a kind of file, so that editors complete it; or the columns of a study's results.
    Schema(schema::SchemaArgs),
    /// Predicted against measured: the points that are shipped, or a file of your own. Exit code 2 where a class is worse than
    /// its bound.
    Validate(validate::ValidateArgs),
    /// Recorded traces: Chakra, PyTorch, Kineto.
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Print the completions of a shell.
    Completions(help::CompletionsArgs),
    /// Print the man page, or write those of all commands to a folder.
    Man(help::ManArgs),
}

/// What to do with a study.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// Run a study: every point of its grid, in parallel; run again to go on after an interruption.
    Run(study::StudyArgs),
    /// Results as one HTML file to send (fronts, points with their plans, what is proven, where it comes from), or as tables for a paper.
    Report(report::ReportArgs),
    /// One point of results: its labels, its plan, what binds it, its system; solved again from the same inputs, refused where they changed.
    Show(point::ShowArgs),
    /// Rows of results for which a condition holds.
    Where(rows::WhereArgs),
    /// What changed between two tables of results, and by how much.
    Compare(rows::CompareArgs),
    /// Split a study into parts that processes on any machines of a shared folder finish, each by `study work`.
    Plan(parts::PlanArgs),
    /// Finish one part of a planned study; called again it goes on. Exit code 75: stopped before the end, call it again.
    Work(parts::WorkArgs),
    /// Give the parts of a planned study to a cluster: an array of jobs, and a job behind it that merges.
    Submit(submit::SubmitArgs),
    /// Say how far a planned study is, from its files alone. Exit code 4 where parts are missing.
    Status(parts::StatusArgs),
    /// Print the numbers of the parts that are not finished, as an array of jobs takes them: 3,17,40-52.
    Missing(parts::MissingArgs),
    /// Join the finished parts into results.csv, byte for byte as `study run` writes it. Exit code 4 where parts are missing, 75 where a search goes on.
    Merge(parts::MergeArgs),
}

/// A command that could not be carried out: what to print on standard error, and the exit code.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Lines for the user.
    pub message: String,
    /// Exit code.
    pub code: i32,
}

impl Failure {
    /// Bad input.
    pub fn input(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::input(problems.to_string())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::input(problem.to_string())
    }
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Self {
        Self::input(error.to_string())
    }
}

/// Carries out a parsed command line; returns the exit code.
pub fn run(cli: Cli) -> i32 {
    let result = match cli.command {
        Command::Map(args) => map::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Place(args) => place::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Study(StudyCommand::Run(args)) => study::run(&args),
        Command::Study(StudyCommand::Report(args)) => report::run(&args),
        Command::Study(StudyCommand::Show(args)) => point::run(&args),
        Command::Study(StudyCommand::Where(args)) => rows::choose(&args),
        Command::Study(StudyCommand::Compare(args)) => rows::compare(&args),
        Command::Study(StudyCommand::Plan(args)) => parts::plan(&args),
        Command::Study(StudyCommand::Work(args)) => parts::work(&args),
        Command::Study(StudyCommand::Submit(args)) => submit::run(&args),
        Command::Study(StudyCommand::Status(args)) => parts::status(&args),
        Command::Study(StudyCommand::Missing(args)) => parts::missing(&args),
        Command::Study(StudyCommand::Merge(args)) => parts::merge(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Import(command) => import::run(&command),
        Command::List(args) => list::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Trace(command) => trace::run(&command),
        Command::Completions(args) => help::completions(&args),
        Command::Man(args) => help::man(&args),
    };
    let code = match result {
        Ok(_) if NOT_PRINTED.load(std::sync::atomic::Ordering::Relaxed) => 1,
        Ok(code) => code,
        Err(failure) => {
            for line in failure.message.lines() {
                say!("error: {}", harmless(line));
            }
            failure.code
        }
    };
    if crate::deadline::is_interrupted() { interrupt::INTERRUPTED } else { code }
}

/// Whether to show how far a run is: inside another program nobody looks.
fn show() -> Show {
    if embed::is_on() { Show::Nothing } else { Show::Progress }
}

/// A line without control characters, which a terminal would take for commands.
fn harmless(line: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\t' { c.escape_default().to_string() } else { c.to_string() };
    line.chars().map(shown).collect()
}

/// Whether something that was to be printed could not be.
static NOT_PRINTED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Writes to standard output. A reader that went away (`flowspace ... | head`) is no error; a full disk is, and the exit code says so.
pub fn print(text: &str) {
    print_by(|out| out.write_all(text.as_bytes()));
}

/// The same of what `write` writes, piece by piece as it comes: of what is too long to be held.
pub fn print_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::BufWriter::with_capacity(1 << 16, Standard);
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e)
            if e.kind() != io::ErrorKind::BrokenPipe
                && !NOT_PRINTED.swap(true, std::sync::atomic::Ordering::Relaxed) =>
        {
            say!("error: cannot write to standard output: {}", crate::spec::node::io_reason(&e));
        }
        _ => {}
    }
    // What could not be written is not tried again when the buffer goes.
    drop(out.into_parts());
}

/// Standard output, or what another program gets instead. The buffer before it keeps each text it is given whole.
struct Standard;

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !embed::out(&String::from_utf8_lossy(bytes)) {
            io::stdout().lock().write_all(bytes)?;
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        io::stdout().lock().flush()
    }
}
