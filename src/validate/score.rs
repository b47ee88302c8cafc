//! Errors of points, summed up by class and held against the bounds.

use super::bounds::Bounds;
use super::class::Class;
use super::lookup;
use super::metric::{Served, error_pct, express};
use super::point::Point;
use super::predict::{NotPredicted, Prediction, Predictor};
use super::read::Refused;
use crate::units::median;
use rayon::prelude::*;

/// What became of one point.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The point.
    pub point: Point,
    /// The predicted figure in the row's unit and its error in per cent, positive where predicted is slower or more; or why
    /// there is none.
    pub predicted: Result<(f64, f64), NotPredicted>,
    /// The software that is counted, where one is.
    pub software: Option<String>,
}

/// The errors of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassScore {
    /// The class.
    pub class: Class,
    /// Points of it.
    pub points: usize,
    /// Points predicted.
    pub n: usize,
    /// Mean absolute error, per cent.
    pub mape_pct: f64,
    /// Median absolute error, per cent.
    pub median_pct: f64,
    /// Largest absolute error, per cent, with its sign.
    pub worst_pct: f64,
    /// The point that has it.
    pub worst: String,
    /// Mean signed error, per cent.
    pub bias_pct: f64,
    /// Mean absolute error of a look-up of the nearest other row, per cent.
    pub neighbour_pct: Option<f64>,
    /// Mean absolute error with one factor of time fitted to the other sources, per cent.
    pub left_out_pct: Option<f64>,
    /// Its bound: mean absolute and signed error in per cent.
    pub bound: Option<(f64, f64)>,
}

impl ClassScore {
    /// What is worse than its bound, if anything is. A class that has a bound and no prediction does not keep to it.
    pub fn violations(&self) -> Vec<String> {
        let Some((mape, bias)) = self.bound else { return Vec::new() };
        if self.n == 0 {
            return vec![format!("{}: none of its {} points is predicted, bound {mape} %", self.class, self.points)];
        }
        let mut list = Vec::new();
        if self.mape_pct > mape {
            list.push(format!("{}: mean error {:.2} %, bound {mape} %", self.class, self.mape_pct));
        }
        if self.bias_pct.abs() > bias {
            list.push(format!(
                "{}: mean signed error {:+.2} %, bound {bias:.2} % either way",
                self.class, self.bias_pct
            ));
        }
        list
    }
}

/// All points and classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Points in the order given.
    pub outcomes: Vec<Outcome>,
    /// Classes that have points, in the order of their definition.
    pub classes: Vec<ClassScore>,
    /// Rows that cannot be read, which belong to no class.
    pub refused: Vec<Refused>,
}

impl Scores {
    /// What is worse than its bound.
    pub fn violations(&self) -> Vec<String> {
        self.classes.iter().flat_map(ClassScore::violations).collect()
    }
}

/// Predicts every point and sums up. Points are independent and run in parallel; the order of the answer is that of the points.
pub fn score(points: Vec<Point>, refused: Vec<Refused>, predictor: &dyn Predictor, bounds: &Bounds) -> Scores {
    let outcomes: Vec<Outcome> = points.into_par_iter().map(|point| outcome(point, predictor)).collect();
    let classes = Class::ALL.iter().filter_map(|class| class_score(*class, &outcomes, bounds)).collect();
    Scores { outcomes, classes, refused }
}

fn outcome(mut point: Point, predictor: &dyn Predictor) -> Outcome {
    let predicted = predict(&mut point, predictor);
    let software = if predicted.is_ok() { predictor.software(&point) } else { None };
    Outcome { predicted, software, point }
}

fn predict(point: &mut Point, predictor: &dyn Predictor) -> Result<(f64, f64), NotPredicted> {
    if let Some(reason) = &point.incomplete {
        return Err(NotPredicted::because(reason.clone()));
    }
    let prediction = predictor.predict(point)?;
    let value = express(point, &prediction).map_err(NotPredicted)?;
    if let Prediction::Served(Served { larger_memory: Some(bytes), .. }) = prediction {
        point.assumed.push(format!("chips with {} GB: what is served fills the others", (bytes / 1e9).round()));
    }
    let error = error_pct(&point.row.metric, point.row.value, value);
    if error.is_finite() { Ok((value, error)) } else { Err(NotPredicted::because("the predicted figure is no number")) }
}

fn class_score(class: Class, outcomes: &[Outcome], bounds: &Bounds) -> Option<ClassScore> {
    let of_class: Vec<&Outcome> = outcomes.iter().filter(|o| o.point.class == class).collect();
    if of_class.is_empty() {
        return None;
    }
    let errors: Vec<(f64, &str)> = of_class
        .iter()
        .filter_map(|o| o.predicted.as_ref().ok().map(|(_, error)| (*error, o.point.row.id.as_str())))
        .collect();
    let n = errors.len();
    let mean = |f: fn(f64) -> f64| errors.iter().map(|(e, _)| f(*e)).sum::<f64>() / n.max(1) as f64;
    let median = median(errors.iter().map(|(e, _)| e.abs()).collect()).unwrap_or(0.0);
    let (neighbour_pct, left_out_pct) = lookup::errors(&of_class);
    let worst = errors.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    Some(ClassScore {
        class,
        points: of_class.len(),
        n,
        mape_pct: mean(f64::abs),
        median_pct: median,
        worst_pct: worst.map_or(0.0, |w| w.0),
        worst: worst.map_or(String::new(), |w| w.1.to_string()),
        bias_pct: mean(|e| e),
        neighbour_pct,
        left_out_pct,
        bound: bounds.of(class).map(|b| (b.mape_pct, b.bias())),
    })
}
