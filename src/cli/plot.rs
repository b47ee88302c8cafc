//! `flowspace plot`.

use super::{Failure, output};
use crate::report::figures::{Kind, Pair, draw_pair, draw_study};
use crate::report::plot::Better;
use crate::report::table::Table;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Arguments of `flowspace plot`.
#[derive(Debug, Args)]
pub struct PlotArgs {
    /// The results.csv of a study; with --x and --y any CSV file with a header.
    pub results: PathBuf,
    /// Column of the horizontal axis: numbers, or names. Without --x and --y every figure of the study is redrawn.
    #[arg(long, value_name = "COLUMN", requires = "y")]
    pub x: Option<String>,
    /// Column of the vertical axis: numbers.
    #[arg(long, value_name = "COLUMN", requires = "x")]
    pub y: Option<String>,
    /// Column whose values get a colour each.
    #[arg(long, value_name = "COLUMN", requires = "x")]
    pub group: Option<String>,
    /// Logarithmic horizontal axis.
    #[arg(long, requires = "x")]
    pub log_x: bool,
    /// Logarithmic vertical axis.
    #[arg(long, requires = "x")]
    pub log_y: bool,
    /// Which chart.
    #[arg(long, value_enum, default_value_t = ChartKind::Scatter, requires = "x")]
    pub kind: ChartKind,
    /// Column of which larger values are better, for --kind pareto: of columns that do not say it (`flowspace schema columns`
    /// tells which do), or against what they say.
    #[arg(long, value_name = "COLUMN", requires = "x")]
    pub max: Vec<String>,
    /// Column of which smaller values are better, likewise.
    #[arg(long, value_name = "COLUMN", requires = "x")]
    pub min: Vec<String>,
    /// Where to write: of all figures the folder, made if it does not exist; of one a folder that is there, or a path in one without
    /// extension. Beside the CSV file if left out.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// Charts of two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChartKind {
    /// Points.
    Scatter,
    /// Points of a group joined in the order of x.
    Line,
    /// Points with the front of those that no other beats.
    Pareto,
}

/// Draws, and prints the names of the files.
///
/// # Errors
/// [`Failure`]: a file that is no such table, unknown columns, columns without numbers, figures that cannot be written.
pub fn run(args: &PlotArgs) -> Result<i32, Failure> {
    let table = Table::read(&args.results).map_err(|e| Failure::input(e.to_string()))?;
    let beside = args.results.parent().unwrap_or(Path::new("")).to_path_buf();
    let drawn = match (&args.x, &args.y) {
        (Some(x), Some(y)) => {
            let stem = match &args.out {
                Some(out) if out.extension().is_some_and(|e| e == "svg" || e == "png") => out.with_extension(""),
                Some(folder) if folder.is_dir() => folder.join(format!("{}-over-{}", file_name(y), file_name(x))),
                Some(out) => out.clone(),
                None => beside.join(format!("{}-over-{}", file_name(y), file_name(x))),
            };
            // The names as they will be: a dot in the stem is no extension.
            let named = ["svg", "png"].map(|end| PathBuf::from(format!("{}.{end}", stem.display())));
            output::check(&named, [args.results.clone()])?;
            let kind = match args.kind {
                ChartKind::Scatter => Kind::Scatter,
                ChartKind::Line => Kind::Line,
                ChartKind::Pareto => Kind::Pareto,
            };
            let (log_x, log_y) = (args.log_x, args.log_y);
            let [x_better, y_better] = directions(args, [x, y])?;
            let pair =
                Pair { x: x.clone(), y: y.clone(), group: args.group.clone(), log_x, log_y, kind, x_better, y_better };
            draw_pair(&table, &pair, &stem).map_err(|e| Failure::input(e.to_string()))?
        }
        _ => {
            let folder = args.out.clone().unwrap_or(beside);
            output::make_folder(&folder)?;
            draw_study(&table, &folder).map_err(|e| Failure::input(e.to_string()))?
        }
    };
    drawn.left_out.iter().for_each(|reason| say!("note: not drawn: {reason}"));
    super::print(&drawn.files.iter().map(|path| format!("{}\n", path.display())).collect::<String>());
    Ok(0)
}

/// What `--max` and `--min` say of the two columns.
fn directions(args: &PlotArgs, columns: [&String; 2]) -> Result<[Option<Better>; 2], Failure> {
    for (option, column) in
        [("--max", &args.max), ("--min", &args.min)].iter().flat_map(|(o, c)| c.iter().map(move |c| (o, c)))
    {
        if !columns.contains(&column) {
            return Err(Failure::input(format!("{option} {column:?}: neither --x nor --y is that column")));
        }
        if args.kind != ChartKind::Pareto {
            return Err(Failure::input(format!("{option} {column:?}: a direction is for --kind pareto")));
        }
        if args.max.contains(column) && args.min.contains(column) {
            return Err(Failure::input(format!("--max and --min cannot both name {column:?}")));
        }
    }
    Ok(columns.map(|column| match (args.max.contains(column), args.min.contains(column)) {
        (true, _) => Some(Better::Higher),
        (_, true) => Some(Better::Lower),
        _ => None,
    }))
}

/// A column's name as part of a file's name.
fn file_name(column: &str) -> String {
    column.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}
