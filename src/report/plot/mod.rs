//! Figures for papers: each chart is written as an SVG file, a PDF file, and a 300 dpi PNG file.
//!
//! A chart is a plain struct with the data and a `draw` method. `draw(stem)` writes `<stem>.svg`, `<stem>.png` and `<stem>.pdf`
//! and returns their paths. The same input always gives the same bytes. Data that cannot be drawn (not a number,
//! infinite, or not positive on a log axis) is left out, and the figure says how many values that were.
//!
//! All lengths are in points (1/72 inch), measured on the printed page: a figure is 252 points (3.5 inch, one column)
//! or 504 points (7 inch, the full width) wide, so text has the size it will have in the paper.

mod agreement;
mod axis;
mod bars;
mod canvas;
mod fonts;
mod frame;
mod gantt;
mod heatmap;
mod labels;
mod legend;
mod numbers;
mod panels;
mod parallel;
mod pareto;
mod pdf;
mod png;
mod render;
mod roofline;
mod scatter_matrix;
mod stacks;
mod style;
mod text;
mod theme;
mod tornado;
mod truetype;
mod xy;

use std::path::PathBuf;

pub use agreement::{Agreement, AgreementPoint};
pub(crate) use axis::drawable;
pub use axis::{Limits, Range, Scale, Tick, ticks};
pub use bars::{Series, StackedBars};
pub use gantt::{Gantt, Stretch};
pub use heatmap::Heatmap;
pub use numbers::short_number;
pub use panels::{HeatmapPanels, Panel};
pub use parallel::{Parallel, ParallelAxis, ParallelLine};
pub(crate) use pareto::front_of;
pub use pareto::{Better, Missing, ParetoChart, Point, Third, pareto_front};
pub use roofline::{Roof, RoofPoint, Roofline};
pub use scatter_matrix::{Dimension, MatrixPoint, ScatterMatrix};
pub use stacks::{Flow, Stack, Stacks};
pub use style::{LegendAt, Style};
pub use tornado::{Lever, Tornado};
pub use xy::{XValue, XyChart, XyPoint};

/// What can go wrong when a figure is written. Bad data is not an error: it is left out and counted in the figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The drawing library refused an operation.
    #[error("cannot draw {}: {message}", path.display())]
    Draw {
        /// The file that was being drawn.
        path: PathBuf,
        /// What the library said.
        message: String,
    },
    /// The font that is built into the program could not be read.
    #[error("the built-in font cannot be read")]
    Font,
}

/// How wide the figure is on the printed page.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Width {
    /// One column unless the content needs the full width.
    #[default]
    Auto,
    /// One column: 3.5 inch.
    Column,
    /// Both columns: 7 inch.
    Full,
    /// So many points.
    Points(f64),
}

impl Width {
    /// The width in points; `wide` says whether `Auto` needs the full width.
    fn points(self, wide: bool) -> f64 {
        match self {
            Width::Column => theme::COLUMN,
            Width::Full => theme::FULL,
            Width::Points(points) => points.clamp(72.0, 2000.0),
            Width::Auto if wide => theme::FULL,
            Width::Auto => theme::COLUMN,
        }
    }
}

#[cfg(test)]
mod tests;
