//! `flowspace plot`.

use super::{Failure, output};
use crate::report::figures::{
    Drawn, FigureError, FigureKind, FigureSpec, LegendWord, Length, OrderWord, draw_all, draw_figure, draw_overlaid,
    together,
};
use crate::report::table::Table;
use crate::spec::read::Name;
use crate::study::Study;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::{Path, PathBuf};

/// Arguments of `flowspace plot`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct PlotArgs {
    /// The results.csv of a study, or of several that are drawn over each other; for one figure any CSV files with a header.
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// Draw one figure of this kind, scatter if only columns are given. Without it and without columns every figure of the study is
    /// redrawn: of several studies their fronts together.
    #[arg(long, value_parser = kinds())]
    pub kind: Option<FigureKind>,
    /// Column of the horizontal axis: numbers, or names; of a heat map the axis of its columns.
    #[arg(long, value_name = "COLUMN")]
    pub x: Option<String>,
    /// Column of the vertical axis: numbers; of a heat map the axis of its rows, of a tornado what changes.
    #[arg(long, value_name = "COLUMN")]
    pub y: Option<String>,
    /// Column of the colours: a third objective, or the values of a heat map.
    #[arg(long, value_name = "COLUMN")]
    pub z: Option<String>,
    /// Columns of --kind parallel and --kind matrix; the axes, price, power and throughput if left out.
    #[arg(long, value_name = "COLUMN,COLUMN", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Column whose values get a colour each.
    #[arg(long, value_name = "COLUMN")]
    pub group: Option<String>,
    /// Column whose values have a front each; the workload if left out.
    #[arg(long, value_name = "COLUMN")]
    pub fronts: Option<String>,
    /// Only rows with this value in this column; of --kind tornado the base point.
    #[arg(long, value_name = "COLUMN=VALUE", value_parser = pair)]
    pub fix: Vec<(String, String)>,
    /// Logarithmic horizontal axis.
    #[arg(long)]
    pub log_x: bool,
    /// Logarithmic vertical axis.
    #[arg(long)]
    pub log_y: bool,
    /// Column of which larger values are better: of columns that do not say it (`flowspace schema columns` tells which do), or against
    /// what they say.
    #[arg(long, value_name = "COLUMN")]
    pub max: Vec<String>,
    /// Column of which smaller values are better, likewise.
    #[arg(long, value_name = "COLUMN")]
    pub min: Vec<String>,
    /// Order of groups and names; that of the table if left out.
    #[arg(long, value_parser = orders())]
    pub order: Option<OrderWord>,
    /// Heading.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Title of the horizontal axis.
    #[arg(long, value_name = "TEXT")]
    pub x_label: Option<String>,
    /// Title of the vertical axis.
    #[arg(long, value_name = "TEXT")]
    pub y_label: Option<String>,
    /// Limits of the horizontal axis; either may be left out (`:100`).
    #[arg(long, value_name = "LOW:HIGH", value_parser = limits)]
    pub x_limits: Option<(Option<f64>, Option<f64>)>,
    /// Limits of the vertical axis, likewise.
    #[arg(long, value_name = "LOW:HIGH", value_parser = limits)]
    pub y_limits: Option<(Option<f64>, Option<f64>)>,
    /// Width of the figure: column (3.5 in), full (7 in), or a length in mm, cm, in or pt.
    #[arg(long, value_name = "LENGTH", value_parser = Length::parse)]
    pub width: Option<Length>,
    /// Height of the plotting area.
    #[arg(long, value_name = "LENGTH", value_parser = Length::parse)]
    pub height: Option<Length>,
    /// Size of tick labels in points, with which all text grows; 7 if left out.
    #[arg(long, value_name = "POINTS")]
    pub font: Option<f64>,
    /// Where the legend stands; at the top if left out.
    #[arg(long, value_parser = legends())]
    pub legend: Option<LegendWord>,
    /// Draw the further figures (`plots: figures:`) that this study file asks for too.
    #[arg(long, value_name = "STUDY")]
    pub plots: Option<PathBuf>,
    /// Where to write: of all figures the folder, made if it does not exist; of one a folder that is there, or a path in one without
    /// extension. Beside the CSV file if left out.
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

fn kinds() -> impl TypedValueParser<Value = FigureKind> {
    let words = FigureKind::ALL.iter().map(|kind| kind.word());
    PossibleValuesParser::new(words).try_map(|word| FigureKind::from_word(&word).ok_or("no kind of figure"))
}

fn orders() -> impl TypedValueParser<Value = OrderWord> {
    let words = OrderWord::ALL.iter().map(|order| order.word());
    PossibleValuesParser::new(words).try_map(|word| OrderWord::from_word(&word).ok_or("no order"))
}

fn legends() -> impl TypedValueParser<Value = LegendWord> {
    let words = LegendWord::ALL.iter().map(|legend| legend.word());
    PossibleValuesParser::new(words).try_map(|word| LegendWord::from_word(&word).ok_or("no place of a legend"))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(column, _)| !column.trim().is_empty());
    let (column, value) = parts.ok_or("expected COLUMN=VALUE, such as memory=hbm")?;
    Ok((column.trim().to_string(), value.trim().to_string()))
}

fn limits(text: &str) -> Result<(Option<f64>, Option<f64>), String> {
    let expected = || "expected LOW:HIGH, numbers of which one may be left out, such as 0:100 or :100".to_string();
    let (lo, hi) = text.split_once(':').ok_or_else(expected)?;
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        text => text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Some).ok_or_else(expected),
    };
    match (number(lo)?, number(hi)?) {
        (None, None) => Err(expected()),
        both => Ok(both),
    }
}

/// Draws, and prints the names of the files.
///
/// # Errors
/// [`Failure`]: a file that is no such table, unknown columns, columns without numbers, figures that cannot be written.
pub fn run(args: &PlotArgs) -> Result<i32, Failure> {
    let fail = |e: FigureError| Failure::input(e.to_string());
    let spec = spec(args);
    let asked = args.kind.is_some() || args.x.is_some() || args.y.is_some() || !args.columns.is_empty();
    let beside = args.results.first().and_then(|path| path.parent()).unwrap_or(Path::new("")).to_path_buf();
    if !asked && spec != FigureSpec::of(FigureKind::Scatter) {
        return Err(Failure::input(
            "these options are of one figure: say which with --kind, or with --x and --y".to_string(),
        ));
    }
    if asked && args.plots.is_some() {
        return Err(Failure::input("--plots draws what a study asks for: leave out --kind and columns".to_string()));
    }
    let tables = args.results.iter().map(|path| Table::read(path)).collect::<Result<Vec<_>, _>>();
    let mut tables = tables.map_err(|e| Failure::input(e.to_string()))?;
    args.results.iter().for_each(|path| super::rows::say_if_altered(path));
    let table = if tables.len() == 1 { tables.remove(0) } else { together(tables).map_err(fail)? };
    let drawn: Drawn = if asked {
        let stem = stem(args, &spec, &beside);
        // The names as they will be: a dot in the stem is no extension.
        let named = ["svg", "png", "pdf"].map(|end| PathBuf::from(format!("{}.{end}", stem.display())));
        output::check(&named, args.results.clone())?;
        draw_figure(&table, &spec, &stem).map_err(fail)?
    } else {
        let further = match &args.plots {
            Some(study) => Study::load(study)?.spec.plots.figures.clone(),
            None => Vec::new(),
        };
        let folder = args.out.clone().unwrap_or(beside);
        output::make_folder(&folder)?;
        if args.results.len() > 1 {
            draw_overlaid(&table, &further, &folder).map_err(fail)?
        } else {
            draw_all(&table, &further, &folder).map_err(fail)?
        }
    };
    drawn.left_out.iter().for_each(|reason| say!("note: not drawn: {reason}"));
    super::print(&drawn.files.iter().map(|path| format!("{}\n", path.display())).collect::<String>());
    Ok(0)
}

/// The figure that the options ask for.
fn spec(args: &PlotArgs) -> FigureSpec {
    let name = |text: &Option<String>| text.clone().map(Name);
    let names = |texts: &[String]| texts.iter().cloned().map(Name).collect::<Vec<_>>();
    let ends = |limits: Option<(Option<f64>, Option<f64>)>| limits.unwrap_or_default();
    let ((x_min, x_max), (y_min, y_max)) = (ends(args.x_limits), ends(args.y_limits));
    let plain = FigureSpec::of(args.kind.unwrap_or(FigureKind::Scatter));
    FigureSpec {
        x: name(&args.x),
        y: name(&args.y),
        z: name(&args.z),
        columns: names(&args.columns),
        group: name(&args.group),
        fronts: name(&args.fronts),
        fixed: crate::spec::read::Table(args.fix.iter().map(|(c, v)| (c.clone(), Name(v.clone()))).collect()),
        max: names(&args.max),
        min: names(&args.min),
        order: args.order.unwrap_or(plain.order),
        title: args.title.clone(),
        x_label: args.x_label.clone(),
        y_label: args.y_label.clone(),
        x_min,
        x_max,
        y_min,
        y_max,
        log_x: args.log_x.then_some(true),
        log_y: args.log_y.then_some(true),
        width: args.width,
        height: args.height,
        font: args.font.unwrap_or(plain.font),
        legend: args.legend.unwrap_or(plain.legend),
        ..plain
    }
}

/// Where the one figure goes, without extension.
fn stem(args: &PlotArgs, spec: &FigureSpec, beside: &Path) -> PathBuf {
    let name = match (spec.kind, &args.x, &args.y, &args.z) {
        (FigureKind::Scatter | FigureKind::Line | FigureKind::Pareto, Some(x), Some(y), None) => {
            format!("{}-over-{}", file_name(y), file_name(x))
        }
        _ => spec.stem(),
    };
    match &args.out {
        Some(out) if out.extension().is_some_and(|e| e == "svg" || e == "png" || e == "pdf") => out.with_extension(""),
        Some(folder) if folder.is_dir() => folder.join(name),
        Some(out) => out.clone(),
        None => beside.join(name),
    }
}

/// A column's name as part of a file's name.
fn file_name(column: &str) -> String {
    column.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}
