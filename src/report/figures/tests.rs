use super::super::csv::{COLUMNS, LEADING, TRAILING};
use super::*;
use std::fs;

/// Results with two axes; `rows` gives some columns of each point.
fn results(name: &str, rows: &[Vec<(&str, String)>]) -> Table {
    let header: Vec<&str> = [LEADING.0, "a", "b"]
        .into_iter()
        .chain(COLUMNS.iter().map(|c| c.name))
        .chain(TRAILING.iter().map(|t| t.0))
        .collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).unwrap();
    for row in rows {
        let value = |column: &&str| row.iter().find(|(name, _)| name == column).map_or("", |(_, v)| v.as_str());
        writer.write_record(header.iter().map(value)).unwrap();
    }
    let path = folder(name).join("results.csv");
    fs::write(&path, writer.into_inner().unwrap()).unwrap();
    Table::read(&path).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("flowspace-figures-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

fn drawn(name: &str, rows: &[Vec<(&str, String)>]) -> Drawn {
    let table = results(name, rows);
    let drawn = draw_study(&table, &folder(name)).unwrap();
    assert!(drawn.files.iter().all(|file| file.exists()));
    fs::remove_dir_all(folder(name)).unwrap();
    drawn
}

fn mapped(i: usize, a: &str, b: &str) -> Vec<(&'static str, String)> {
    let number = |base: f64| (base + i as f64).to_string();
    vec![
        ("a", a.to_string()),
        ("b", b.to_string()),
        ("status", "optimal".into()),
        ("study", "test".into()),
        ("chip_name", format!("chip {i}")),
        ("samples_per_s", number(1.0)),
        ("cost_usd", number(10.0)),
        ("power_w", number(20.0)),
        ("utilization", number(0.5)),
        ("compute_s", "0.5".into()),
        ("dram_s", "0.25".into()),
        ("network_s", "0.25".into()),
        ("overhead_s", "0".into()),
        ("bottleneck", "compute".into()),
        ("fusion_mapping", "A+B+C|D".into()),
        ("partition_times_s", "0.25/0.25/0/0|0.25/0/0.25/x".into()),
        ("layer_flop", number(1e12)),
        ("layer_dram_bytes", "1e9".into()),
        ("layer_s", "1".into()),
        ("peak_flop_per_s", number(1e13)),
        ("dram_bytes_per_s", "1e11".into()),
    ]
}

#[test]
fn no_rows_and_rows_without_a_plan_are_figures_too() {
    assert_eq!(drawn("none", &[]).left_out.len(), 5);
    let row = |status: &str, short: &str| {
        vec![("a", "x, \"y\"".to_string()), ("b", "ü".into()), ("status", status.into()), ("short_of", short.into())]
    };
    let drawn = drawn("without", &[row("infeasible", "dram"), row("failed", "")]);
    assert_eq!(drawn.left_out.len(), 5, "{:?}", drawn.left_out);
    assert!(drawn.left_out.iter().any(|reason| reason == "bars of partitions: no point has a plan"));
    // The heat map says what the points are short of.
    assert_eq!(drawn.files.len(), 3);
}

#[test]
fn large_studies_are_thinned_out() {
    let rows: Vec<_> = (0..200).map(|i| mapped(i, &format!("g{}", i % 100), &format!("{i}"))).collect();
    let drawn = drawn("large", &rows);
    assert_eq!(drawn.left_out.len(), 1);
    assert!(drawn.left_out[0].contains("100 x 200 cells"), "{:?}", drawn.left_out);
    let table = results("fastest", &rows);
    let results = Results::new(&table).unwrap();
    assert_eq!(results.fastest(&[3, 103, 7]), Some(103));
    assert_eq!(results.fastest_each(&[0, 1, 100, 101], &[0, 1, 0, 1]), [100, 101]);
    fs::remove_dir_all(folder("fastest")).unwrap();
}

#[test]
fn a_heat_map_follows_the_study() {
    let mut rows: Vec<_> = (0..4).map(|i| mapped(i, ["p", "q"][i / 2], ["r", "s"][i % 2])).collect();
    rows.iter_mut().for_each(|row| row.push(("heatmap", "b;a;cost_usd".into())));
    let drawn = drawn("heat", &rows);
    assert!(drawn.files.iter().any(|file| file.ends_with("heatmap-cost_usd.svg")));
    assert!(drawn.left_out.is_empty());
}

#[test]
fn partitions_are_named_briefly() {
    assert_eq!(brief("A"), "A");
    assert_eq!(brief("A+B"), "A, B");
    assert_eq!(brief("A+B+C"), "A ... C (3 kernels)");
}

/// The labels of the front of price against a column, whose values rise, rise, fall.
fn front(name: &str, column: &str, better: Option<Better>) -> Result<Vec<bool>, FigureError> {
    let rows: Vec<_> = [(10, 100), (20, 200), (30, 50)]
        .iter()
        .zip(["one-cheap", "one-between", "one-dear"])
        .map(|((cost, value), label)| {
            vec![
                ("a", label.to_string()),
                ("b", "x".into()),
                ("cost_usd", cost.to_string()),
                ("tokens_per_s", value.to_string()),
                ("flop_per_s_per_w", value.to_string()),
                ("j_per_token", value.to_string()),
                ("tp", value.to_string()),
            ]
        })
        .collect();
    let table = results(name, &rows);
    let named = |name: &str| Some(crate::spec::read::Name(name.to_string()));
    let mut spec = FigureSpec::of(FigureKind::Pareto);
    (spec.x, spec.y) = (named("cost_usd"), named(column));
    match better {
        Some(Better::Higher) => spec.max.extend(named(column)),
        Some(Better::Lower) => spec.min.extend(named(column)),
        None => {}
    }
    let drawn = draw_figure(&table, &spec, &folder(name).join("pair"));
    let svg = fs::read_to_string(folder(name).join("pair.svg")).unwrap_or_default();
    fs::remove_dir_all(folder(name)).unwrap();
    drawn.map(|_| ["one-cheap", "one-between", "one-dear"].iter().map(|label| svg.contains(label)).collect())
}

#[test]
fn fronts_follow_the_direction_of_the_column() {
    // Higher is better: the dear point is beaten, the middle one is not.
    for column in ["tokens_per_s", "flop_per_s_per_w"] {
        assert_eq!(front(column, column, None).unwrap(), [true, true, false], "{column}");
    }
    // Lower is better: the cheap point beats the middle one.
    assert_eq!(front("j", "j_per_token", None).unwrap(), [true, false, true]);
    let unknown = front("tp", "tp", None).unwrap_err().to_string();
    assert!(unknown.contains("--max tp or --min tp"), "{unknown}");
    assert_eq!(front("max", "tp", Some(Better::Higher)).unwrap(), [true, true, false]);
    assert_eq!(front("min", "tp", Some(Better::Lower)).unwrap(), [true, false, true]);
}
