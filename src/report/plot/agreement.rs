//! Predicted over measured on equal logarithmic axes, with the diagonal and a band of 10 % round it.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale};
use super::canvas::{Canvas, Pt};
use super::frame::{self, Axis, Frame, Spec};
use super::legend::{self, Groups};
use super::theme::{self, BLACK, DARK, MARGIN, MID};
use super::{PlotError, render};

/// One measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct AgreementPoint {
    /// Points of one group share colour and marker shape.
    pub group: String,
    /// What was measured.
    pub measured: f64,
    /// What was predicted, in the same unit.
    pub predicted: f64,
}

/// A chart of predicted over measured figures of one quantity.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agreement {
    /// The quantity with its unit.
    pub quantity: String,
    /// The points.
    pub points: Vec<AgreementPoint>,
}

/// Ratio of the upper edge of the band to the diagonal.
const BAND: f64 = 1.1;

impl Agreement {
    /// Writes `<stem>.svg` and `<stem>.png`.
    ///
    /// # Errors
    /// [`PlotError`] when a file cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        let all: Vec<f64> = self.points.iter().flat_map(|p| [p.measured, p.predicted]).collect();
        let range = Range::over(&all, Scale::Log);
        let mut canvas = Canvas::new(theme::COLUMN)?;
        let groups = Groups::of(self.points.iter().map(|p| p.group.as_str()));
        let (left, right) = (MARGIN, canvas.width - MARGIN);
        let top = legend::draw(&mut canvas, &groups.entries(), left, right, MARGIN) + 2.0;
        let (x_label, y_label) = (format!("measured {}", self.quantity), format!("predicted {}", self.quantity));
        let height = canvas.width * 0.8;
        let spec = Spec { x: Axis::Number(range), y: range, x_label: &x_label, y_label: &y_label, top, height };
        let frame = frame::draw(&mut canvas, spec);
        for (ratio, dashed) in [(1.0, false), (BAND, true), (1.0 / BAND, true)] {
            if let Some(line) = diagonal(&frame, &range, ratio) {
                if dashed {
                    canvas.dashed(&line, 0.6, MID, &[3.0, 2.0]);
                } else {
                    canvas.stroke(&line, 0.8, DARK);
                }
            }
        }
        let shown: Vec<(&AgreementPoint, Pt)> = self
            .points
            .iter()
            .filter_map(|p| Some((p, frame.x_at(p.measured).zip(frame.y_at(p.predicted))?)))
            .collect();
        if shown.is_empty() {
            frame::no_data(&mut canvas, &frame.plot);
        }
        let radius = theme::point_radius(shown.len());
        for (point, at) in &shown {
            let color = groups.color(&point.group);
            let outline = Some((theme::mix(color, BLACK, 0.4), 0.35));
            theme::marker(&mut canvas, groups.shape(&point.group), *at, radius, color, outline);
        }
        let bottom = frame::skipped(&mut canvas, self.points.len() - shown.len(), "point", true, frame.bottom);
        let bottom = frame::note(&mut canvas, "dashed: 10 % above and below", bottom);
        canvas.height = bottom + MARGIN;
        render::write(&canvas, stem)
    }
}

/// The line predicted = `ratio` x measured within the frame.
fn diagonal(frame: &Frame, range: &Range, ratio: f64) -> Option<Vec<Pt>> {
    let from = range.lo().max(range.lo() / ratio);
    let to = range.hi().min(range.hi() / ratio);
    if from >= to {
        return None;
    }
    [from, to].iter().map(|x| Some((frame.x_at(*x)?, frame.y_at(x * ratio)?))).collect()
}
