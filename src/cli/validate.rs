//! `flowspace validate`.

use super::trace::critical_path::Format as TableFormat;
use super::{Failure, output};
use crate::spec::{Loader, Reader, nearest::meant, node::io_reason, node::read_bounded};
use crate::validate::accelerators;
use crate::validate::bounds::Bounds;
use crate::validate::predict::Models;
use crate::validate::read::{self, File};
use crate::validate::suites::{self, SUITES, Suite};
use crate::validate::{Point, machines, report, score, traces};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Arguments of `flowspace validate`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ValidateArgs {
    /// Other things than points.
    #[command(subcommand)]
    pub other: Option<Other>,
    /// Suites that are shipped: megatron-sc21, korthikanti, training, kernels, inference, memory, hpl. All of them where neither a
    /// suite nor a file is named.
    #[arg(value_name = "SUITE", value_parser = suite)]
    pub suites: Vec<&'static str>,
    /// A file of measured points: our columns (id, metric, value and unit at least), or vTrain's. May be given several times.
    #[arg(long, value_name = "FILE.csv")]
    pub points: Vec<PathBuf>,
    /// What is printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Folder for validation.json, validation.csv and the figures; made if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Bounds of the classes instead of those that are shipped.
    #[arg(long, value_name = "FILE.yaml")]
    pub bounds: Option<PathBuf>,
    /// Systems that training runs are predicted on, instead of those shipped in validation/machines.yaml.
    #[arg(long, value_name = "FILE.yaml")]
    pub machines: Option<PathBuf>,
    /// Chips and software that rows name, instead of those shipped in validation/chips.yaml.
    #[arg(long, value_name = "FILE.yaml")]
    pub chips: Option<PathBuf>,
    /// Every chip as if it were new: its datasheet, the middle of what was measured of the other chips, and what current software of its kind does. Prints
    /// errors by chip (leave-one-chip-out).
    #[arg(long, conflicts_with = "machines")]
    pub as_new: bool,
}

/// What else is validated.
#[derive(Debug, Subcommand)]
pub enum Other {
    /// Recorded traces: kernels timed anew on the machine that each was recorded on, and the step replayed with them
    Traces(TracesArgs),
}

/// Arguments of `flowspace validate traces`.
#[derive(Debug, Args)]
pub struct TracesArgs {
    /// A folder, searched with those inside it, or one file: Kineto traces (with the host trace of the same rank beside them, where there is
    /// one) and linked traces.
    pub place: PathBuf,
    /// The chip of traces, instead of the one that they name.
    #[arg(long, value_name = "CHIP")]
    pub on: Option<String>,
    /// The host trace beside PLACE, where that is one file.
    #[arg(long, value_name = "FILE")]
    pub host: Option<PathBuf>,
    /// A trace of the same program on another chip: its step is predicted from PLACE, which is one file.
    #[arg(long, value_name = "FILE", conflicts_with = "on")]
    pub twin: Option<PathBuf>,
    /// Chips and their names, instead of those shipped in validation/chips.yaml.
    #[arg(long, value_name = "FILE.yaml")]
    pub chips: Option<PathBuf>,
    /// What is printed; CSV has a row a trace.
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
}

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables.
    Text,
    /// An object with `classes` and `rows`.
    Json,
}

fn suite(name: &str) -> Result<&'static str, String> {
    Suite::named(name).map(|s| s.name).ok_or_else(|| {
        let names: Vec<&str> = SUITES.iter().map(|s| s.name).collect();
        let meant = meant(name, &names);
        format!("expected {}; a file of points is named with --points{meant}", names.join(", "))
    })
}

/// Predicts the points and prints the errors.
///
/// # Errors
/// [`Failure`]: files that cannot be read or make no sense, output that cannot be written.
pub fn run(args: &ValidateArgs) -> Result<i32, Failure> {
    if let Some(Other::Traces(args)) = &args.other {
        return of_traces(args);
    }
    let bounds = match &args.bounds {
        Some(path) => Reader::read::<Bounds>(&Loader.load(path, None)?)?,
        None => suites::bounds()?,
    };
    if let Some(path) = &args.chips {
        accelerators::take_from(path)?;
    }
    if args.as_new {
        accelerators::take_as_new()?;
    }
    let machines = match &args.machines {
        Some(path) => machines::from(path)?,
        None if args.as_new => Vec::new(),
        None => machines::shipped()?,
    };
    let (mut points, mut refused) = (Vec::new(), Vec::new());
    let mut take = |file: File| {
        file.remarks.iter().for_each(|remark| say!("note: {remark}"));
        refused.extend(file.refused);
        points.extend(file.rows.into_iter().map(Point::new));
    };
    let all = args.suites.is_empty() && args.points.is_empty();
    for suite in SUITES.iter().filter(|s| all || args.suites.contains(&s.name)) {
        take(suite.read().map_err(|faults| Failure::input(faults.to_string()))?);
    }
    let mut faults = Vec::new();
    for path in &args.points {
        let name = path.display().to_string();
        match read_bounded(path) {
            Err(e) => faults.push(format!("cannot read {name:?}: {}", io_reason(&e))),
            Ok(bytes) => match read::read(&name, &bytes) {
                Ok(file) => take(file),
                Err(found) => faults.push(found.to_string()),
            },
        }
    }
    if !faults.is_empty() {
        return Err(Failure::input(faults.join("\n")));
    }
    let scores = score(points, refused, &Models { machines }, &bounds);
    let json = serde_json::to_string_pretty(&report::json(&scores)).map_err(|e| Failure::input(e.to_string()))?;
    match args.format {
        Format::Text => {
            super::print(&report::text(&scores));
            if args.as_new {
                super::print(&format!("\n{}", report::by_chip(&scores)));
            }
        }
        Format::Json => super::print(&format!("{json}\n")),
    }
    if let Some(folder) = &args.out {
        output::make_folder(folder)?;
        output::write(&folder.join("validation.json"), format!("{json}\n"))?;
        let csv = report::csv(&scores).map_err(|e| Failure::input(e.to_string()))?;
        output::write(&folder.join("validation.csv"), csv)?;
        let files = report::draw(&scores, folder).map_err(|e| Failure::input(e.to_string()))?;
        files.iter().for_each(|path| say!("wrote {}", path.display()));
    }
    // Bounds are those of machines that are known.
    let violations = if args.as_new { Vec::new() } else { scores.violations() };
    violations.iter().for_each(|line| say!("not within its bound: {line}"));
    Ok(if violations.is_empty() { 0 } else { 2 })
}

fn of_traces(args: &TracesArgs) -> Result<i32, Failure> {
    if let Some(path) = &args.chips {
        accelerators::take_from(path)?;
    }
    let text = match &args.twin {
        Some(twin) => {
            let twins = traces::twins(&args.place, twin, [args.host.as_deref(), None]).map_err(Failure::input)?;
            match args.format {
                TableFormat::Text => traces::twins_text(&twins),
                TableFormat::Json => format!("{:#}\n", serde_json::json!(twins)),
                TableFormat::Csv => return Err(Failure::input("--twin has a table of operators: text or json")),
            }
        }
        None => {
            let scores =
                traces::validate(&args.place, args.host.as_deref(), args.on.as_deref()).map_err(Failure::input)?;
            match args.format {
                TableFormat::Text => traces::text(&scores),
                TableFormat::Json => format!("{}\n", traces::json(&scores)),
                TableFormat::Csv => traces::csv(&scores),
            }
        }
    };
    super::print(&text);
    Ok(0)
}
