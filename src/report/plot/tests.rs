//! Drawing with bad data, and properties of whole figures.

use std::fs;
use std::path::{Path, PathBuf};

use super::theme;
use super::*;

/// Numbers that break careless code.
const NASTY: [f64; 12] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
    -0.0,
    -1.0,
    1.0,
    1e-300,
    f64::MAX,
    f64::MIN_POSITIVE,
    1e12,
    1.0 + f64::EPSILON,
];

fn names() -> Vec<String> {
    let long = "x".repeat(80);
    ["", " ", "Ünïcode 日本語 😀", "<&\"'>", "tab\there\nline\u{0}\u{1b}", long.as_str()].map(String::from).to_vec()
}

fn stem(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("flowspace-plot-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("temporary folder");
    folder.join(name)
}

/// Both files are there, are what they claim to be, and a second drawing gives the same bytes.
fn check(draw: impl Fn(&Path) -> Result<Vec<PathBuf>, PlotError>, name: &str) {
    let first = draw(&stem(name)).expect(name);
    let second = draw(&stem(&format!("{name}-again"))).expect(name);
    assert_eq!(first.len(), 2);
    for (a, b) in first.iter().zip(&second) {
        let (a, b) = (fs::read(a).expect("file"), fs::read(b).expect("file"));
        assert!(a == b, "{name} is not deterministic");
        assert!(a.starts_with(b"<svg") || a.starts_with(b"\x89PNG"));
        assert!(!String::from_utf8_lossy(&a).contains("NaN,") || a.starts_with(b"\x89PNG"));
    }
    for path in first.iter().chain(&second) {
        fs::remove_file(path).expect("remove");
    }
}

fn pairs() -> Vec<(f64, f64)> {
    NASTY.iter().flat_map(|x| NASTY.iter().map(move |y| (*x, *y))).collect()
}

/// Empty, one point, equal points, ordinary and nasty points.
fn sets() -> Vec<Vec<(f64, f64)>> {
    vec![
        vec![],
        vec![(1.0, 1.0)],
        vec![(0.0, 0.0)],
        vec![(5.0, 5.0); 30],
        pairs(),
        (0..40).map(|i| (f64::from(i), f64::from(i))).collect(),
    ]
}

const SCALES: [Scale; 3] = [Scale::Auto, Scale::Linear, Scale::Log];

#[test]
fn pareto_takes_anything() {
    for (i, set) in sets().into_iter().enumerate() {
        let names = names();
        let points = set
            .iter()
            .enumerate()
            .map(|(n, (x, y))| {
                let name = &names[n % names.len()];
                Point { label: name.clone(), group: name.clone(), x: *x, y: *y, proven: true }
            })
            .collect();
        let chart = ParetoChart {
            title: names[i % names.len()].clone(),
            x_label: names[5].clone(),
            y_label: names[5].clone(),
            x_better: Better::Lower,
            y_better: if i % 2 == 0 { Better::Higher } else { Better::Lower },
            points,
            x_scale: SCALES[i % 3],
            y_scale: SCALES[(i + 1) % 3],
        };
        check(|stem| chart.draw(stem), &format!("pareto{i}"));
    }
}

#[test]
fn pareto_takes_ten_thousand_points() {
    let points = (0..10_000)
        .map(|i| {
            let (x, y) = (f64::from(i * 7919 % 10_007), f64::from(i * 104_729 % 10_009));
            Point { label: format!("design {i}"), group: format!("g{}", i % 30), x, y, proven: i % 7 != 0 }
        })
        .collect();
    let chart = ParetoChart {
        title: "many".into(),
        x_label: "x".into(),
        y_label: "y".into(),
        x_better: Better::Lower,
        y_better: Better::Higher,
        points,
        x_scale: Scale::Auto,
        y_scale: Scale::Auto,
    };
    check(|stem| chart.draw(stem), "pareto-many");
}

#[test]
fn heatmap_takes_anything() {
    let ragged = Heatmap {
        title: names()[5].clone(),
        rows: names(),
        cols: [names(), names()].concat(),
        row_title: names()[5].clone(),
        col_title: names()[5].clone(),
        value_label: names()[5].clone(),
        cells: vec![NASTY.iter().map(|v| Some(*v)).collect(), vec![], vec![None, Some(3.0)]],
        notes: vec![vec![], vec![None, Some(names()[5].clone()), Some(names()[2].clone())]],
    };
    let one =
        Heatmap { rows: vec!["r".into()], cols: vec!["c".into()], cells: vec![vec![Some(1.0)]], ..Heatmap::default() };
    for (i, chart) in [Heatmap::default(), one, ragged].iter().enumerate() {
        check(|stem| chart.draw(stem), &format!("heatmap{i}"));
    }
}

#[test]
fn panels_take_anything() {
    let labels = |n: usize| (0..n).map(|i| vec![names()[i % 6].clone(), format!("{i}")]).collect::<Vec<_>>();
    let panel = |title: String| Panel {
        title,
        cells: vec![NASTY.iter().map(|v| Some(*v)).collect(), vec![], vec![None, Some(3.0)]],
        notes: vec![vec![], vec![None, Some(names()[5].clone()), Some(names()[2].clone())]],
    };
    let many = HeatmapPanels {
        title: names()[5].clone(),
        rows: labels(7),
        cols: labels(30),
        row_title: names()[5].clone(),
        col_title: names()[1].clone(),
        value_label: "{}".into(),
        scale: Scale::Auto,
        panels: names().into_iter().map(panel).collect(),
    };
    let ragged = HeatmapPanels { rows: vec![vec![], vec!["a".into()], vec![String::new(); 3]], ..many.clone() };
    let flat = HeatmapPanels { rows: labels(3), cols: labels(2), panels: vec![Panel::default()], ..many.clone() };
    for (i, chart) in [HeatmapPanels::default(), many, ragged, flat].iter().enumerate() {
        check(|stem| chart.draw(stem), &format!("panels{i}"));
    }
}

#[test]
fn bars_take_anything() {
    for log in [false, true] {
        let nasty = StackedBars {
            title: names()[2].clone(),
            x_label: names()[5].clone(),
            y_label: names()[5].clone(),
            categories: [names(), names(), names()].concat(),
            series: names().into_iter().map(|name| Series { name, values: NASTY.to_vec() }).collect(),
            marked: vec![Some(0), None, Some(99), Some(5), Some(1)],
            log,
        };
        let series = vec![Series { name: "a".into(), values: (0..200).map(f64::from).collect() }];
        let many = StackedBars { categories: vec!["bar".into(); 200], series, log, ..StackedBars::default() };
        for (i, chart) in [StackedBars { log, ..StackedBars::default() }, nasty, many].iter().enumerate() {
            check(|stem| chart.draw(stem), &format!("bars{i}{log}"));
        }
    }
}

#[test]
fn roofline_takes_anything() {
    for (i, set) in sets().into_iter().enumerate() {
        let names = names();
        let name = |n: usize| names[n % names.len()].clone();
        let chart = Roofline {
            title: name(i),
            x_label: name(5),
            y_label: name(2),
            roofs: set
                .iter()
                .enumerate()
                .map(|(n, (x, y))| Roof { label: name(n), peak_y: *x, slope: *y, group: name(n / 2) })
                .collect(),
            points: set
                .iter()
                .enumerate()
                .map(|(n, (x, y))| RoofPoint { label: name(n), group: name(n), x: *x, y: *y })
                .collect(),
        };
        check(|stem| chart.draw(stem), &format!("roofline{i}"));
    }
}

/// Two roofs that lie on each other are one line with both names.
#[test]
fn roofs_that_coincide_share_a_label() {
    let roof =
        |label: &str, peak_y: f64, group: &str| Roof { label: label.into(), peak_y, slope: 1e12, group: group.into() };
    let roofs = vec![roof("A, fast", 1e14, "A"), roof("B, fast", 1e14, "B"), roof("C, fast", 3e14, "C")];
    let chart = Roofline { roofs, ..Roofline::default() };
    let stem = std::env::temp_dir().join(format!("flowspace-roofs-{}", std::process::id()));
    let files = chart.draw(&stem).unwrap();
    let svg = std::fs::read_to_string(&files[0]).unwrap();
    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    assert!(svg.contains("A, fast and B, fast") && svg.contains("C, fast"), "{svg}");
}

#[test]
fn xy_takes_anything() {
    for (i, set) in sets().into_iter().enumerate() {
        let names = names();
        let points = set
            .iter()
            .enumerate()
            .map(|(n, (x, y))| XyPoint {
                group: names[n % names.len()].clone(),
                x: if i % 2 == 0 || n % 2 == 0 { XValue::Number(*x) } else { XValue::Text(names[n % 6].clone()) },
                y: *y,
            })
            .collect();
        let chart =
            XyChart { points, lines: true, x_scale: SCALES[i % 3], y_scale: SCALES[(i + 1) % 3], ..XyChart::default() };
        check(|stem| chart.draw(stem), &format!("xy{i}"));
    }
}

#[test]
fn a_missing_folder_is_an_error() {
    let result = XyChart::default().draw(Path::new("/nonexistent-folder/figure"));
    assert!(matches!(result, Err(PlotError::Write { .. })));
}

#[test]
fn fronts() {
    let low_high = |points: &[(f64, f64)]| pareto_front(points, Better::Lower, Better::Higher);
    assert!(low_high(&[]).is_empty());
    assert!(low_high(&[(f64::NAN, 1.0), (1.0, f64::NAN)]).is_empty());
    // Ties in x: only the better y stays. Ties in y: only the better x stays.
    assert_eq!(low_high(&[(1.0, 1.0), (1.0, 2.0), (2.0, 2.0), (3.0, 3.0)]), [1, 3]);
    // Equal points beat neither of each other, also when the sign of zero differs.
    assert_eq!(low_high(&[(0.0, 1.0), (-0.0, 1.0), (0.0, 1.0)]), [0, 1, 2]);
    assert_eq!(low_high(&[(f64::INFINITY, 9.0), (1.0, 1.0), (f64::NEG_INFINITY, 0.0)]), [2, 1, 0]);
    assert_eq!(pareto_front(&[(1.0, 1.0), (2.0, 2.0)], Better::Higher, Better::Higher), [1]);
    assert_eq!(pareto_front(&[(1.0, 1.0), (2.0, 2.0)], Better::Lower, Better::Lower), [0]);
    assert_eq!(pareto_front(&[(1.0, 2.0), (2.0, 1.0)], Better::Higher, Better::Lower), [1]);
}

#[test]
fn the_front_is_what_the_definition_says() {
    let points: Vec<(f64, f64)> = (0..200).map(|i| (f64::from(i * 37 % 23), f64::from(i * 91 % 29))).collect();
    let beats = |a: &(f64, f64), b: &(f64, f64)| a.0 <= b.0 && a.1 >= b.1 && a != b;
    let mut front = pareto_front(&points, Better::Lower, Better::Higher);
    front.sort_unstable();
    let plain: Vec<usize> =
        (0..points.len()).filter(|i| !points.iter().any(|other| beats(other, &points[*i]))).collect();
    assert_eq!(front, plain);
}

#[test]
fn text_contrasts_with_its_background() {
    assert_eq!(theme::luminance(theme::BLACK), 0.0);
    assert!((theme::luminance(theme::WHITE) - 1.0).abs() < 1e-9);
    assert_eq!(theme::text_on(theme::viridis(0.0)), theme::WHITE);
    assert_eq!(theme::text_on(theme::viridis(1.0)), theme::BLACK);
    for step in 0..=100 {
        let back = theme::luminance(theme::viridis(f64::from(step) / 100.0));
        let text = theme::luminance(theme::text_on(theme::viridis(f64::from(step) / 100.0)));
        let ratio = (back.max(text) + 0.05) / (back.min(text) + 0.05);
        assert!(ratio >= 4.5, "{step}: {ratio}");
    }
}

#[test]
fn text_is_fitted_and_wrapped() {
    fonts::ensure().expect("font");
    let long = "SN30 / torus-2d / HBM3 stack / optical link";
    let short = text::fit(long, 7.0, false, 80.0);
    assert!(short.contains('…') && short.starts_with("SN30") && short.ends_with("link"), "{short}");
    assert!(fonts::width(&short, 7.0, false) <= 80.0);
    assert_eq!(text::fit("ok", 7.0, false, 80.0), "ok");
    assert_eq!(text::wrap("aa bb", 7.0, false, 12.0, 3), ["aa", "bb"]);
    assert_eq!(text::wrap("", 7.0, false, 12.0, 3).len(), 0);
    // The em is calibrated: DejaVu's "m" is 0.974 em wide.
    assert!((fonts::width("mmmm", 10.0, false) - 4.0 * 9.74).abs() < 0.1);
}
