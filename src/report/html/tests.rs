use super::super::csv::TRAILING;
use super::super::manifest::MANIFEST;
use super::*;
use crate::report::table::RESULTS;
use std::path::PathBuf;

/// A folder with results; gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    /// Each row is its label on the axis `kind` and values by column.
    fn new(name: &str, rows: &[(&str, &[(&str, &str)])]) -> Self {
        let folder = std::env::temp_dir().join(format!("flowspace-report-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let header: Vec<&str> = [LEADING.0, "kind"]
            .into_iter()
            .chain(COLUMNS.iter().map(|c| c.name))
            .chain(TRAILING.map(|t| t.0))
            .collect();
        let mut out = csv::Writer::from_path(folder.join(RESULTS)).unwrap();
        out.write_record(&header).unwrap();
        for (i, (kind, values)) in rows.iter().enumerate() {
            let index = i.to_string();
            let value = |name: &&str| match *name {
                "point" => index.clone(),
                "kind" => (*kind).to_string(),
                name => values.iter().find(|(n, _)| *n == name).map_or(String::new(), |(_, v)| (*v).to_string()),
            };
            out.write_record(header.iter().map(value)).unwrap();
        }
        out.flush().unwrap();
        Self(folder)
    }

    fn table(&self) -> Table {
        Table::read(&self.0.join(RESULTS)).unwrap()
    }

    /// The manifest of what lies there now.
    fn vouch(&self) {
        let manifest = Manifest {
            study: "s".into(),
            question: Some("<b>why</b>".into()),
            source: None,
            file: "s.yaml".into(),
            points: 9,
            version: "1".into(),
            commit: "c".into(),
            engines: vec!["e".into()],
            model_revision: 1,
            ended: manifest::now(),
            inputs: Vec::new(),
            outputs: [RESULTS, front::PROOF].iter().filter_map(|name| Digest::within(&self.0, name)).collect(),
        };
        std::fs::write(self.0.join(MANIFEST), serde_json::to_string(&manifest).unwrap()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The data of a page as a browser reads them.
fn read(page: &str) -> Json {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// The values of a column, as the scripts get them.
fn values(data: &Json, name: &str) -> Vec<Json> {
    let column =
        data["columns"].as_array().unwrap().iter().find(|c| c["n"] == name).unwrap_or_else(|| panic!("{name}"));
    (0..data["rows"].as_u64().unwrap() as usize)
        .map(|row| match (column.get("c"), column.get("d")) {
            (Some(all), _) => all.clone(),
            (None, Some(distinct)) => distinct[column["i"][row].as_u64().unwrap() as usize].clone(),
            (None, None) => column["v"][row].clone(),
        })
        .collect()
}

#[test]
fn names_stay_texts() {
    let hostile = "</script><img src=x onerror=alert(1)>";
    let folder = Folder::new(
        "hostile",
        &[(hostile, &[("study", "<!--<script>"), ("workload", "a & \"b\" \u{2028} c"), ("status", "optimal")])],
    );
    folder.vouch();
    let page = page(&folder.table()).unwrap();
    let data = read(&page);
    assert_eq!(values(&data, "kind"), [json!(hostile)]);
    assert_eq!(values(&data, "workload"), [json!("a & \"b\" \u{2028} c")]);
    assert_eq!((&data["title"], &data["manifest"]["question"]), (&json!("<!--<script>"), &json!("<b>why</b>")));
    assert!(!page.contains("<img") && !page.contains("<b>") && page.contains("<title>&lt;!--&lt;script&gt;</title>"));
    // Two scripts and no more, nothing from elsewhere: the one address is the name of SVG.
    assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (2, 2));
    assert_eq!((page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count()), (1, 1));
    assert!(page.contains("default-src 'none'"));
    for left in ["{{title", "{{style", "{{data", "{{scripts", "src=", "href=\"h", "innerHTML", "eval(", "fetch("] {
        assert!(!page.replace("src=x", "").contains(left), "{left}");
    }
}

#[test]
fn numbers_read_back() {
    let third = "0.3333333333333333";
    let rows: Vec<(String, String)> =
        (0..40).map(|i| (format!("{}", 1.0 / f64::from(i + 3)), format!("{}", i % 2))).collect();
    let rows: Vec<Vec<(&str, &str)>> = rows
        .iter()
        .map(|(y, dp)| {
            vec![
                ("status", "optimal"),
                ("workload", "w"),
                ("samples_per_s", y),
                ("cost_usd", "12345678.25"),
                ("dp", dp),
                ("work_s", third),
                ("flop_per_iteration", "123456789012345"),
            ]
        })
        .collect();
    let rows: Vec<(&str, &[(&str, &str)])> = rows.iter().map(|r| ("k", r.as_slice())).collect();
    let folder = Folder::new("numbers", &rows);
    let data = read(&page(&folder.table()).unwrap());
    for (i, value) in values(&data, "samples_per_s").iter().enumerate() {
        assert_eq!(value.as_f64().unwrap(), 1.0 / (i as f64 + 3.0), "in full");
    }
    assert_eq!(
        (values(&data, "cost_usd")[3].as_f64(), values(&data, "dp")[3].as_f64()),
        (Some(12345678.25), Some(1.0))
    );
    assert_eq!(
        (values(&data, "work_s")[0].as_f64(), values(&data, "flop_per_iteration")[0].as_f64()),
        (Some(0.333333), Some(123457e9))
    );
    // Empty columns are left out; what is not known is said to be so.
    assert!(data["columns"].as_array().unwrap().iter().all(|c| c["n"] != "reason"));
    assert_eq!((&data["manifest"], &data["vouched"], &data["proof"]), (&Json::Null, &json!(false), &Json::Null));
}

#[test]
fn many_rows_are_short() {
    assert_eq!([&b""[..], b"f", b"fo", b"foo", b"foob"].map(base64), ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    let rows: Vec<Vec<(&str, String)>> = (0..MANY_ROWS)
        .map(|i| {
            let value = 1.0 / (i as f64 + 3.0);
            let found = if i == 7 { String::new() } else { (value * 1e12).to_string() };
            vec![
                ("workload", "w".into()),
                ("status", "optimal".into()),
                ("samples_per_s", value.to_string()),
                ("cost_usd", (value * 1e9).to_string()),
                ("work_s", found),
            ]
        })
        .collect();
    let rows: Vec<Vec<(&str, &str)>> = rows.iter().map(|r| r.iter().map(|(n, v)| (*n, v.as_str())).collect()).collect();
    let rows: Vec<(&str, &[(&str, &str)])> = rows.iter().map(|r| ("k", r.as_slice())).collect();
    let data = read(&page(&Folder::new("short", &rows).table()).unwrap());
    assert_eq!(data["exact"], json!(["cost_usd", "samples_per_s"]));
    assert_eq!(values(&data, "samples_per_s")[9].as_f64(), Some(1.0 / 12.0));
    let work = data["columns"].as_array().unwrap().iter().find(|c| c["n"] == "work_s").unwrap();
    assert_eq!(work["f"].as_str().unwrap().len(), 4 * MANY_ROWS);
    let levels = Levels::of(&["1e-6/0/2e-3/1".into(), String::new(), "1e-3/1e-6/0/0|1e-6/0/0/1".into()]).unwrap();
    assert_eq!(
        (levels.low, levels.high, levels.write(""), levels.write("1e-6/0/1/1e-3|0/0/0/0").as_str()),
        (1e-6, 1.0, String::new(), "AB-//gA----")
    );
    assert!(Levels::of(&["1/2".into(), "x".into()]).is_none() && Levels::of(&["0/0".into()]).is_none());
    assert_eq!(Levels::of(&["3".into()]).unwrap().write("3"), "AB");
    let bytes = singles(&["1.5", "", "2e30", "0"]).unwrap();
    let back: Vec<f32> = bytes.chunks(3).map(|b| f32::from_bits(u32::from_le_bytes([0, b[0], b[1], b[2]]))).collect();
    assert!(back[0] == 1.5 && back[1].is_nan() && (back[2] / 2e30 - 1.0).abs() < 2e-5 && back[3] == 0.0, "{back:?}");
    assert!(singles(&["1e300"]).is_none() && singles(&["1e-300"]).is_none());
}

#[test]
fn fronts_are_by_workload() {
    let row = |workload: &'static str, x: &'static str, y: &'static str| {
        [("workload", workload), ("cost_usd", x), ("samples_per_s", y)]
    };
    let all = [
        row("a", "1", "1"),
        row("a", "2", "5"),
        row("a", "3", "4"),
        row("b", "9", "0.5"),
        row("b", "8", "0.25"),
        row("a", "4", ""),
    ];
    let rows: Vec<(&str, &[(&str, &str)])> = all.iter().map(|r| ("k", r.as_slice())).collect();
    let folder = Folder::new("fronts", &rows);
    let table = folder.table();
    let pair = front::pair(&table).unwrap().unwrap();
    assert_eq!((pair.x.as_str(), pair.y.as_str()), ("cost_usd", "samples_per_s"));
    let mut fronts = front::fronts(&table, &pair).unwrap();
    fronts.iter_mut().for_each(|(_, rows)| rows.sort_unstable());
    assert_eq!(fronts, [("a".to_string(), vec![0, 1]), ("b".to_string(), vec![3, 4])]);
    // The objectives of a search go before the usual ones, as long as the files are those that were written.
    std::fs::write(folder.0.join(front::PROOF), r#"{"objectives":["min chips","max tokens_per_s"],"front":[0]}"#)
        .unwrap();
    folder.vouch();
    let pair = front::pair(&table).unwrap().unwrap();
    assert_eq!((pair.x.as_str(), pair.y.as_str()), ("chips", "tokens_per_s"));
    assert_eq!(read(&page(&table).unwrap())["proof"]["front"], json!([0]));
    std::fs::write(folder.0.join(front::PROOF), r#"{"objectives":["min chips","max tokens_per_s"],"front":[1]}"#)
        .unwrap();
    assert_eq!(front::pair(&table).unwrap().unwrap().x, "cost_usd");
    assert_eq!(read(&page(&table).unwrap())["proof"], Json::Null);
}

#[test]
fn what_makes_no_page_is_an_error() {
    assert!(matches!(page(&Folder::new("none", &[]).table()), Err(ReportError::NoRows)));
    let many = vec![("k", &[][..]); MOST_ROWS + 1];
    assert!(
        matches!(page(&Folder::new("many", &many).table()), Err(ReportError::TooMany { rows }) if rows == MOST_ROWS + 1)
    );
    let other = std::env::temp_dir().join(format!("flowspace-report-{}-other.csv", std::process::id()));
    std::fs::write(&other, "a,b\n1,2\n").unwrap();
    assert!(read_page(&other).unwrap_err().to_string().contains("not the results of a study"));
    std::fs::remove_file(&other).unwrap();
}
