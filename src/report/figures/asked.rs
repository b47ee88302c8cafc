//! A figure as it is asked for: in `plots` of a study, or by the options of `flowspace plot`.

use super::super::csv::COLUMNS;
use super::super::plot::{LegendAt, Style, Width};
use crate::spec::read::{Name, Table};
use crate::spec::{FromNode, Node, Reader, schema::Definitions};
use serde::Serialize;
use serde_json::json;

crate::choice! {
    /// Kinds of figures.
    pub enum FigureKind ("a kind of figure") {
        /// Points of two columns; of three with the third as colour.
        Scatter = "scatter",
        /// Points joined in the order of x; where several share an x, the best is taken, and the figure says so.
        Line = "line",
        /// Points with the front of those that no other beats: of two columns, or of three.
        Pareto = "pareto",
        /// Cells by two axes, coloured by a column; where several points share a cell, the best is taken, and the figure says so.
        Heatmap = "heatmap",
        /// What each point spends a layer's time on.
        Bars = "bars",
        /// One chip's work under the roofs of its peak and its memory.
        Roofline = "roofline",
        /// What each axis changes by itself, from a base point.
        Tornado = "tornado",
        /// An axis for each column and a line across them for each point.
        Parallel = "parallel",
        /// Every column over every other.
        Matrix = "matrix",
        /// How much of the box of all points the front beats, as solves finish.
        Hypervolume = "hypervolume",
    }
}

crate::choice! {
    /// Where the legend of a figure stands.
    pub enum LegendWord ("a place of a legend") {
        /// Between title and plot.
        Top = "top",
        /// Below the axis titles.
        Bottom = "bottom",
        /// Right of the plot.
        Right = "right",
        /// Nowhere.
        None = "none",
    }
}

crate::choice! {
    /// The order of groups, and of names on an axis.
    pub enum OrderWord ("an order") {
        /// As in the table.
        Table = "table",
        /// By name, numbers in names by value.
        Name = "name",
        /// By the best value, the best first.
        Value = "value",
    }
}

/// A length on paper, in points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Length(pub f64);

impl Length {
    /// `column` (3.5 in), `full` (7 in), or a length of 1 to 27 inches such as `88 mm`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = match (number.is_empty(), unit) {
            (true, "column") => return Ok(Self(252.0)),
            (true, "full") => return Ok(Self(504.0)),
            (_, "mm") => 72.0 / 25.4,
            (_, "cm") => 72.0 / 2.54,
            (_, "in") => 72.0,
            (_, "pt") => 1.0,
            _ => 0.0,
        };
        match number.trim().parse::<f64>() {
            Ok(number) if (72.0..=2000.0).contains(&(number * unit)) => Ok(Self(number * unit)),
            _ => Err(Self::expected()),
        }
    }
}

impl FromNode for Length {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = String::from_node(node, reader)?;
        let length = Self::parse(&text);
        length.map_err(|expected| reader.problem(node, format!("expected {expected}, found {}", node.describe()))).ok()
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "string", "description": Self::expected(), "examples": ["88 mm"] })
    }
    fn expected() -> String {
        "column, full, or a length from 72 pt to 2000 pt in mm, cm, in or pt, such as \"88 mm\"".into()
    }
}

crate::spec! {
    /// A figure beside those that every study has. Which of `x`, `y`, `z`, `columns` and `rows` it takes follows from its kind; columns
    /// are those of the results, axes included.
    pub struct FigureSpec ("a figure", check: check) {
        /// Which kind.
        kind: FigureKind,
        /// Name of its files, without extension; made of kind and columns if left out.
        name: Option<Name>,
        /// Column of the horizontal axis; of a heat map the axis whose labels are the columns.
        x: Option<Name>,
        /// Column of the vertical axis; of a heat map the axis whose labels are the rows; of a tornado the column that changes.
        y: Option<Name>,
        /// Column of the colours: the third objective of a front, the values of a heat map.
        z: Option<Name>,
        /// Columns of parallel coordinates and of a scatter matrix; the axes, price, power and throughput if left out.
        columns: Vec<Name> = Vec::new(),
        /// Column whose values get a colour and a marker each.
        group: Option<Name>,
        /// Column whose values have a front each; `workload` if left out, as designs of different workloads do not compete.
        fronts: Option<Name>,
        /// Values of columns that points must have, `column: value`; of a tornado the base point, as far as it is given.
        fixed: Table<Name> = Table::default(),
        /// Columns of which larger values are better: where the column does not say it, or against what it says.
        max: Vec<Name> = Vec::new(),
        /// Columns of which smaller values are better, likewise.
        min: Vec<Name> = Vec::new(),
        /// Order of groups and names.
        order: OrderWord = OrderWord::Table,
        /// Heading; the study's name if left out, none if empty.
        title: Option<String>,
        /// Title of the horizontal axis.
        x_label: Option<String>,
        /// Title of the vertical axis.
        y_label: Option<String>,
        /// Lower limit of the horizontal axis.
        x_min: Option<f64>,
        /// Its upper limit.
        x_max: Option<f64>,
        /// Lower limit of the vertical axis.
        y_min: Option<f64>,
        /// Its upper limit.
        y_max: Option<f64>,
        /// Logarithmic horizontal axis; where the values span decades if left out.
        log_x: Option<bool>,
        /// Logarithmic vertical axis, likewise.
        log_y: Option<bool>,
        /// Width of the figure.
        width: Option<Length>,
        /// Height of the plotting area.
        height: Option<Length>,
        /// Size of tick labels in points, 4 to 24, with which all text grows.
        font: f64 = 7.0,
        /// Where the legend stands.
        legend: LegendWord = LegendWord::Top,
    }
}

impl FigureSpec {
    /// A figure of a kind with nothing else said.
    pub fn of(kind: FigureKind) -> Self {
        Self {
            kind,
            name: None,
            x: None,
            y: None,
            z: None,
            columns: Vec::new(),
            group: None,
            fronts: None,
            fixed: Table::default(),
            max: Vec::new(),
            min: Vec::new(),
            order: OrderWord::Table,
            title: None,
            x_label: None,
            y_label: None,
            x_min: None,
            x_max: None,
            y_min: None,
            y_max: None,
            log_x: None,
            log_y: None,
            width: None,
            height: None,
            font: 7.0,
            legend: LegendWord::Top,
        }
    }

    /// How it looks.
    pub(super) fn style(&self) -> Style {
        Style {
            width: self.width.map_or(Width::Auto, |width| Width::Points(width.0)),
            height: self.height.map(|height| height.0),
            font: Some(self.font),
            x_limits: (self.x_min, self.x_max),
            y_limits: (self.y_min, self.y_max),
            legend: match self.legend {
                LegendWord::Top => LegendAt::Top,
                LegendWord::Bottom => LegendAt::Bottom,
                LegendWord::Right => LegendAt::Right,
                LegendWord::None => LegendAt::None,
            },
        }
    }

    /// The columns it names, each with the field that names it.
    pub fn named(&self) -> Vec<(&'static str, &str)> {
        let one = [("x", &self.x), ("y", &self.y), ("z", &self.z), ("group", &self.group), ("fronts", &self.fronts)];
        let one = one.into_iter().filter_map(|(field, name)| Some((field, name.as_ref()?)));
        let lists = [("columns", &self.columns), ("max", &self.max), ("min", &self.min)];
        let lists = lists.into_iter().flat_map(|(field, names)| names.iter().map(move |name| (field, name)));
        let fixed = self.fixed.0.iter().map(|(column, _)| ("fixed", column.as_str()));
        one.chain(lists).map(|(field, name)| (field, name.0.as_str())).chain(fixed).collect()
    }

    /// What is wrong with it by itself: each with its field.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let kind = self.kind.word();
        let (needed, taken) = self.kind.fields();
        let given = [("x", self.x.is_some()), ("y", self.y.is_some()), ("z", self.z.is_some())];
        let given = given.into_iter().chain([
            ("columns", !self.columns.is_empty()),
            ("group", self.group.is_some()),
            ("fronts", self.fronts.is_some()),
        ]);
        for (field, is_given) in given {
            if is_given && !needed.contains(&field) && !taken.contains(&field) {
                let all: Vec<&str> = needed.iter().chain(taken).copied().collect();
                let takes = if all.is_empty() { "none of x, y, z, columns".into() } else { all.join(", ") };
                found.push((field, format!("a figure of kind {kind} takes {takes}")));
            }
            if !is_given && needed.contains(&field) {
                found.push((field, format!("a figure of kind {kind} needs {}", needed.join(", "))));
            }
        }
        if self.columns.len() == 1 {
            found.push(("columns", format!("a figure of kind {kind} needs at least two columns, found one")));
        }
        if self.columns.len() > MOST_COLUMNS {
            found
                .push(("columns", format!("at most {MOST_COLUMNS} columns can be read, found {}", self.columns.len())));
        }
        if !(4.0..=24.0).contains(&self.font) {
            found.push(("font", format!("expected a size of 4 to 24 points, found {}", self.font)));
        }
        for (field, lo, hi, log) in
            [("x_max", self.x_min, self.x_max, self.log_x), ("y_max", self.y_min, self.y_max, self.log_y)]
        {
            if let (Some(lo), Some(hi)) = (lo, hi)
                && lo >= hi
            {
                found.push((field, format!("the upper limit {hi} is not above the lower one, {lo}")));
            }
            if log == Some(true) && (lo == Some(0.0) || hi == Some(0.0)) {
                found.push((field, "a logarithmic axis has no 0: a limit must be above it".into()));
            }
        }
        let shown: Vec<&Name> = [&self.x, &self.y, &self.z].into_iter().flatten().chain(&self.columns).collect();
        let usual = self.columns.is_empty() && matches!(self.kind, FigureKind::Parallel | FigureKind::Matrix);
        for (field, names) in [("max", &self.max), ("min", &self.min)] {
            if !names.is_empty() && matches!(self.kind, FigureKind::Scatter | FigureKind::Bars | FigureKind::Roofline) {
                found.push((
                    field,
                    format!("a direction is for figures with a front or a best point, a {kind} has neither"),
                ));
            } else if let Some(name) = names.iter().find(|name| !usual && !shown.contains(name)) {
                found.push((field, format!("{:?} is none of the figure's columns", name.0)));
            }
        }
        for name in self.max.iter().filter(|name| self.min.contains(name)) {
            found.push(("max", format!("max and min cannot both name {:?}", name.0)));
        }
        found
    }
}

/// Columns of parallel coordinates or a scatter matrix.
const MOST_COLUMNS: usize = 12;

impl FigureKind {
    /// The fields a kind needs, and those it takes besides.
    fn fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Scatter => (&["x", "y"], &["z", "group"]),
            Self::Line => (&["x", "y"], &["group"]),
            Self::Pareto => (&["x", "y"], &["z", "group", "fronts"]),
            Self::Hypervolume => (&["x", "y"], &["z", "fronts"]),
            Self::Heatmap => (&["x", "y", "z"], &[]),
            Self::Tornado => (&["y"], &[]),
            Self::Parallel | Self::Matrix => (&[], &["columns", "group", "fronts"]),
            Self::Bars | Self::Roofline => (&[], &[]),
        }
    }
}

fn check(figure: &FigureSpec, node: &Node, reader: &mut Reader) {
    for (field, problem) in figure.problems() {
        reader.within(field, |r| r.problem(node.get(field).unwrap_or(node), problem));
    }
}

/// What of a figure a study with these axes cannot draw: each with its field.
pub fn unknown_columns(figure: &FigureSpec, axes: &[&str]) -> Vec<(&'static str, String)> {
    let columns: Vec<&str> = axes.iter().copied().chain(COLUMNS.iter().map(|column| column.name)).collect();
    let wrong = figure.named().into_iter().filter(|(_, name)| !columns.contains(name));
    let say = |name: &str| match crate::spec::nearest::nearest(name, &columns) {
        Some(near) => format!("there is no axis or column {name:?}; did you mean {near:?}?"),
        None => format!(
            "there is no axis or column {name:?}; the axes are {}, `flowspace schema columns` tells of the columns",
            axes.join(", ")
        ),
    };
    wrong.map(|(field, name)| (field, say(name))).collect()
}
