//! What a figure looks like apart from its data: size, fonts, limits, legend.

use super::axis::Limits;
use super::canvas::Canvas;
use super::legend::{self, Entry};
use super::theme::{MARGIN, TICK};
use super::{PlotError, Width, frame};

/// Where the legend stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LegendAt {
    /// Between title and plot.
    #[default]
    Top,
    /// Below the axis titles.
    Bottom,
    /// Right of the plot.
    Right,
    /// Nowhere.
    None,
}

/// Choices that every chart takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Style {
    /// Width of the figure.
    pub width: Width,
    /// Height of the plotting area in points; by the kind of chart if left out.
    pub height: Option<f64>,
    /// Size of tick labels in points, with which all text and lines grow; 7 if left out.
    pub font: Option<f64>,
    /// Limits of the horizontal axis.
    pub x_limits: Limits,
    /// Limits of the vertical axis.
    pub y_limits: Limits,
    /// Where the legend stands.
    pub legend: LegendAt,
}

/// A drawing under way: the canvas, and what of the legend is still to come.
pub(crate) struct Sheet<'s> {
    pub canvas: Canvas,
    style: &'s Style,
    entries: Vec<Entry>,
    /// What the legend beside the plot takes of the width.
    beside: f64,
    top: f64,
}

impl Style {
    /// How much larger than designed everything is.
    fn zoom(&self) -> f64 {
        self.font.map_or(1.0, |font| font / TICK)
    }

    /// An empty drawing; `wide` says whether the content needs the full width.
    pub(crate) fn sheet(&self, wide: bool) -> Result<Sheet<'_>, PlotError> {
        let canvas = Canvas::new(self.width.points(wide) / self.zoom())?;
        Ok(Sheet { canvas, style: self, entries: Vec::new(), beside: 0.0, top: 0.0 })
    }

    /// The height of the plotting area where the kind of chart would take `usual`.
    pub(crate) fn height_or(&self, usual: f64) -> f64 {
        self.height.map_or(usual, |height| height / self.zoom())
    }
}

impl Sheet<'_> {
    /// Writes title and legend, and returns where the plot may begin.
    pub fn begin(&mut self, title: &str, entries: Vec<Entry>) -> f64 {
        let top = frame::title(&mut self.canvas, title, MARGIN);
        self.top = top;
        let right = self.right();
        match self.style.legend {
            LegendAt::Top => legend::draw(&mut self.canvas, &entries, MARGIN, right, top),
            LegendAt::None => top,
            LegendAt::Bottom | LegendAt::Right => {
                if self.style.legend == LegendAt::Right && !entries.is_empty() {
                    self.beside = (legend::column(&entries) + 2.0).min(self.canvas.width * 0.45) + MARGIN;
                    self.canvas.width -= self.beside;
                }
                self.entries = entries;
                top
            }
        }
    }

    fn right(&self) -> f64 {
        self.canvas.width - MARGIN
    }

    /// Writes what is left of the legend below `bottom`, or beside the plot, and returns where it ends.
    pub fn legend(&mut self, bottom: f64) -> f64 {
        let entries = std::mem::take(&mut self.entries);
        if self.beside > 0.0 {
            let left = self.canvas.width;
            self.canvas.width += self.beside;
            let mut y = self.top;
            for entry in &entries {
                y = legend::draw(&mut self.canvas, std::slice::from_ref(entry), left, left + self.beside - MARGIN, y);
            }
            return bottom.max(y);
        }
        if entries.is_empty() {
            return bottom;
        }
        let right = self.right();
        legend::draw(&mut self.canvas, &entries, MARGIN, right, bottom + 3.0)
    }

    /// The finished drawing, which ends at `bottom`.
    pub fn end(mut self, bottom: f64) -> Canvas {
        self.canvas.height = bottom + MARGIN;
        self.canvas.zoomed(self.style.zoom())
    }
}
