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
    assert_eq!(first.len(), 3);
    for (a, b) in first.iter().zip(&second) {
        let (a, b) = (fs::read(a).expect("file"), fs::read(b).expect("file"));
        assert!(a == b, "{name} is not deterministic");
        assert!(a.starts_with(b"<svg") || a.starts_with(b"\x89PNG") || a.starts_with(b"%PDF-"));
        assert!(!String::from_utf8_lossy(&a).contains("NaN,") || !a.starts_with(b"<svg"));
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
                Point { label: name.clone(), group: name.clone(), x: *x, y: *y, ..Point::default() }
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
            ..ParetoChart::default()
        };
        check(|stem| chart.draw(stem), &format!("pareto{i}"));
    }
}

#[test]
fn pareto_takes_ten_thousand_points() {
    let points = (0..10_000)
        .map(|i| {
            let (x, y) = (f64::from(i * 7919 % 10_007), f64::from(i * 104_729 % 10_009));
            Point {
                label: format!("design {i}"),
                group: format!("g{}", i % 30),
                x,
                y,
                open: i % 7 == 0,
                ..Point::default()
            }
        })
        .collect();
    let chart = ParetoChart {
        title: "many".into(),
        x_label: "x".into(),
        y_label: "y".into(),
        x_better: Better::Lower,
        y_better: Better::Higher,
        points,
        ..ParetoChart::default()
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
        remarks: Vec::new(),
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
            notes: Vec::new(),
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
                .map(|(n, (x, y))| Roof { chip: name(n / 2), memory: name(n), peak_y: *x, slope: *y })
                .collect(),
            points: set
                .iter()
                .enumerate()
                .map(|(n, (x, y))| RoofPoint { label: name(n), chip: name(n), memory: name(n / 2), x: *x, y: *y })
                .collect(),
            notes: Vec::new(),
        };
        check(|stem| chart.draw(stem), &format!("roofline{i}"));
    }
}

/// Chips that share a memory share the slanted line, and chips of one peak the level one: no line is drawn over another.
#[test]
fn parts_of_roofs_that_coincide_are_drawn_once() {
    let roof = |chip: &str, memory: &str, peak_y: f64, slope: f64| Roof {
        chip: chip.into(),
        memory: memory.into(),
        peak_y,
        slope,
    };
    let roofs = vec![
        roof("A", "fast", 1e14, 1e12),
        roof("B", "fast", 3e14, 1e12),
        roof("A", "slow", 1e14, 1e11),
        roof("B", "slow", 3e14, 1e11),
    ];
    let canvas = Roofline { roofs, ..Roofline::default() }.compose(&Style::default()).unwrap();
    let thick = |op: &&canvas::Op| matches!(op, canvas::Op::Stroke { width, color, .. } if *width == 1.2 && *color != theme::MID);
    // Two level lines; the slanted ones are grey.
    assert_eq!(canvas.ops.iter().filter(thick).count(), 2);
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

/// What no figure may have: texts on each other, leaders through markers, anything beyond its edges.
fn flaws(canvas: &canvas::Canvas) -> Vec<String> {
    let mut found = Vec::new();
    let page = canvas::Rect::at(0.0, 0.0, canvas.width, canvas.height).grown(0.5);
    let texts: Vec<(&str, canvas::Rect)> = canvas.ops.iter().filter_map(canvas::Op::text_room).collect();
    for (i, (text, room)) in texts.iter().enumerate() {
        if !page.contains(room) {
            found.push(format!("{text:?} at {room:?} leaves the page"));
        }
        for (other, rect) in &texts[..i] {
            // Capitals may come as near as a hair.
            if rect.grown(-0.4).overlaps(&room.grown(-0.4)) {
                found.push(format!("{text:?} at {room:?} on {other:?} at {rect:?}"));
            }
        }
    }
    for (from, to) in &canvas.leaders {
        // A leader begins at the edge of the marker it belongs to.
        let own = |at: &canvas::Pt, radius: f64| (at.0 - from.0).hypot(at.1 - from.1) < radius + 1.2;
        for (at, radius) in &canvas.markers {
            if labels::from_segment(*at, *from, *to) < radius - 0.3 && !own(at, *radius) {
                found.push(format!("leader {from:?} to {to:?} crosses the marker at {at:?}"));
            }
        }
    }
    for op in &canvas.ops {
        let points: &[canvas::Pt] = match op {
            canvas::Op::Stroke { points, .. } | canvas::Op::Fill { points, .. } => points,
            canvas::Op::Disc { center, .. } => std::slice::from_ref(center),
            canvas::Op::Text { .. } => &[],
        };
        if let Some(point) = points.iter().find(|point| !page.has(**point)) {
            found.push(format!("a shape at {point:?} leaves the page"));
        }
    }
    found
}

/// The check sees what it is for.
#[test]
fn flaws_are_found() {
    let mut canvas = canvas::Canvas::new(100.0).unwrap();
    canvas.text("one", (10.0, 20.0), canvas::Look::new(7.0));
    canvas.text("two", (14.0, 22.0), canvas::Look::new(7.0));
    canvas.text("beyond the edge", (80.0, 50.0), canvas::Look::new(7.0));
    theme::marker(&mut canvas, theme::shape(0), (50.0, 50.0), 3.0, theme::BLACK, None);
    canvas.leader((30.0, 50.0), (70.0, 50.0), theme::MID);
    canvas.disc((50.0, 130.0), 2.0, theme::MID);
    assert_eq!(flaws(&canvas).len(), 4, "{:#?}", flaws(&canvas));
}

/// Numbers that follow from a seed: what designs look like, in clumps and over decades.
fn spread(seed: u64, count: usize) -> Vec<(f64, f64)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..count)
        .map(|_| {
            let clump = (next() * 4.0).floor();
            let (x, y) = (next(), next());
            let far = if seed.is_multiple_of(3) { 3.0 } else { 0.4 };
            (10_f64.powf(6.0 + clump * far + 0.3 * x), 10_f64.powf(1.0 + 0.3 * clump + 0.4 * x * y))
        })
        .collect()
}

fn word(i: usize) -> String {
    ["h100", "tpu-v4 / ddr / torus-2d-pcie", "sn30", "wse-2 / dragonfly / hbm / nvlink", "a", "mixtral-8x7b-training"]
        [i % 6]
        .to_string()
}

fn styles() -> Vec<Style> {
    let at = |legend, font, width| Style { legend, font, width, ..Style::default() };
    vec![
        Style::default(),
        at(LegendAt::Bottom, Some(9.0), Width::Full),
        at(LegendAt::Right, None, Width::Full),
        at(LegendAt::None, Some(6.0), Width::Points(300.0)),
    ]
}

fn hold(what: &str, canvas: Result<canvas::Canvas, PlotError>) {
    let found = flaws(&canvas.expect(what));
    assert!(found.is_empty(), "{what}: {} flaws, first {:#?}", found.len(), &found[..found.len().min(4)]);
}

#[test]
fn no_front_has_labels_on_each_other_or_leaders_through_markers() {
    for seed in 0..60_u64 {
        let count = [1, 3, 12, 40, 80, 300][seed as usize % 6];
        let point = |(i, (x, y)): (usize, (f64, f64))| Point {
            label: format!("{} / {i}", word(i)),
            group: word(i % [1, 3, 6][seed as usize % 3]),
            class: if seed.is_multiple_of(4) { word(i % 3) } else { String::new() },
            x,
            y,
            z: (x * y).sqrt(),
            open: i % 5 == 0,
            reach: Some(y * 1.3),
            unvalidated: i % 7 == 0,
        };
        let chart = ParetoChart {
            title: word(seed as usize),
            x_label: "price ($)".into(),
            y_label: "throughput (samples/s)".into(),
            y_better: Better::Higher,
            third: seed.is_multiple_of(5).then(|| Third { label: "power_w".into(), better: Better::Lower }),
            points: spread(seed, count).into_iter().enumerate().map(point).collect(),
            missing: vec![Missing { reason: "dram".into(), x: vec![1e6, 3e7] }; seed as usize % 3],
            class_name: "workload".into(),
            ..ParetoChart::default()
        };
        let style = styles()[seed as usize % 4];
        hold(&format!("front {seed}"), chart.compose(&style));
    }
}

#[test]
fn no_other_chart_has_texts_on_each_other_or_beyond_the_page() {
    for seed in 0..24_u64 {
        let n = seed as usize;
        let style = styles()[n % 4];
        let points = spread(seed, [1, 5, 30, 90][n % 4]);
        let names: Vec<String> = (0..[2, 6, 12, 41][n % 4]).map(|i| format!("{} {i}", word(i + n))).collect();
        let share = |i: usize| points.iter().map(|(x, _)| (x.log10() - 5.0) / (i + 1) as f64).collect::<Vec<_>>();
        let bars = StackedBars {
            title: word(n),
            x_label: "chip / memory / network".into(),
            y_label: "share of busy time".into(),
            series: (0..4)
                .map(|i| Series {
                    name: word(i),
                    values: names.iter().enumerate().map(|(k, _)| share(i)[k % points.len()]).collect(),
                })
                .collect(),
            marked: names.iter().enumerate().map(|(k, _)| Some(k % 4)).collect(),
            categories: names.clone(),
            ..StackedBars::default()
        };
        hold(&format!("bars {seed}"), bars.compose(&style));
        let roofline = Roofline {
            title: word(n),
            x_label: "operational intensity (FLOP/byte of DRAM)".into(),
            y_label: "FLOP/s of one chip".into(),
            roofs: (0..n % 9)
                .map(|i| Roof {
                    chip: word(i),
                    memory: ["HBM", "DDR"][i % 2].into(),
                    peak_y: 1e14 * (1 + i % 4) as f64,
                    slope: 1e11 * (1 + 9 * (i % 2)) as f64,
                })
                .collect(),
            points: points
                .iter()
                .enumerate()
                .map(|(i, (x, y))| RoofPoint {
                    label: if points.len() < 9 { word(i) } else { String::new() },
                    chip: word(i % 4),
                    memory: ["HBM", "DDR"][i % 2].into(),
                    x: x.sqrt(),
                    y: y * 1e12,
                })
                .collect(),
            notes: Vec::new(),
        };
        hold(&format!("roofline {seed}"), roofline.compose(&style));
        let xy = XyChart {
            title: word(n),
            x_label: "sram_bytes".into(),
            y_label: "cost_usd".into(),
            points: points
                .iter()
                .enumerate()
                .map(|(i, (x, y))| XyPoint {
                    group: word(i % 4),
                    x: if n.is_multiple_of(2) {
                        XValue::Number(*x)
                    } else {
                        XValue::Text(names[i % names.len()].clone())
                    },
                    y: *y,
                })
                .collect(),
            lines: true,
            steps: n.is_multiple_of(3),
            ..XyChart::default()
        };
        hold(&format!("xy {seed}"), xy.compose(&style));
        let matrix = ScatterMatrix {
            title: word(n),
            dimensions: (0..2 + n % 4)
                .map(|i| Dimension {
                    name: ["cost_usd", "power_w", "samples_per_s"][i % 3].into(),
                    ..Dimension::default()
                })
                .collect(),
            points: points
                .iter()
                .enumerate()
                .map(|(i, (x, y))| MatrixPoint {
                    group: word(i % 4),
                    strong: i % 3 == 0,
                    values: (0..5).map(|k| if k % 2 == 0 { *x } else { *y }).collect(),
                })
                .collect(),
            notes: Vec::new(),
        };
        hold(&format!("matrix {seed}"), matrix.compose(&style));
        let parallel = Parallel {
            title: word(n),
            axes: (0..2 + n % 6)
                .map(|i| ParallelAxis {
                    name: ["cost_usd", "chip", "samples_per_s"][i % 3].into(),
                    names: if i % 3 == 1 { (0..4).map(word).collect() } else { Vec::new() },
                    better: Some(Better::Higher),
                    ..ParallelAxis::default()
                })
                .collect(),
            lines: points
                .iter()
                .enumerate()
                .map(|(i, (x, y))| ParallelLine {
                    group: word(i % 4),
                    strong: i % 3 == 0,
                    values: (0..8)
                        .map(|k| {
                            if k % 3 == 1 {
                                (i % 4) as f64
                            } else if k % 2 == 0 {
                                *x
                            } else {
                                *y
                            }
                        })
                        .collect(),
                })
                .collect(),
            notes: Vec::new(),
        };
        hold(&format!("parallel {seed}"), parallel.compose(&style));
        let rows: Vec<Vec<String>> = (0..3 + n % 7).map(|i| vec![word(i / 3), format!("r{i}")]).collect();
        let cols: Vec<Vec<String>> =
            (0..4).map(|i| vec![word(i / 2), ["torus-2d-pcie", "dgx-2-nvlink"][i % 2].into()]).collect();
        let cells = rows
            .iter()
            .map(|_| cols.iter().enumerate().map(|(i, _)| Some(points[i % points.len()].1)).collect())
            .collect();
        let panels = HeatmapPanels {
            title: word(n),
            rows,
            cols,
            row_title: "chip".into(),
            col_title: "memory / network".into(),
            value_label: "cost_usd".into(),
            scale: Scale::Auto,
            panels: vec![Panel { cells, ..Panel::default() }],
        };
        hold(&format!("panels {seed}"), panels.compose(&style));
        let tornado = Tornado {
            title: word(n),
            x_label: "iteration_s over that of the base".into(),
            levers: names
                .iter()
                .enumerate()
                .map(|(i, name)| Lever {
                    name: name.clone(),
                    value: points[i % points.len()].1 - 12.0,
                    fixed: Some(3.0 - points[i % points.len()].1),
                })
                .collect(),
            names: ["more".into(), "less".into()],
            notes: Vec::new(),
        };
        hold(&format!("tornado {seed}"), tornado.compose(&style));
    }
}
