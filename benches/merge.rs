//! How the merge of a study in parts grows: `cargo bench --features cbc,parquet --bench merge`, with `FLOWSPACE_POINTS_MERGED=10000000` as many points as that
//! (1,000,000 if left out). No point is solved but one: parts are written with rows of its columns and other numbers, as `study work` would, in
//! the folder that `TMPDIR` names. Without `parquet` the table is written as CSV alone. Prints bytes, seconds and the peak of memory.

use flowspace::report::columns::Columns;
use flowspace::report::manifest::{Digest, Manifest};
use flowspace::report::parquet;
use flowspace::report::table::RESULTS;
use flowspace::study::parts::{self, Merged, Plan, PlanOptions};
use flowspace::study::{RunOptions, Study, run};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PARTS: u64 = 1000;

/// A grid of so many points, or a few more: bandwidths of DRAM and of both kinds of links.
fn study(folder: &Path, points: u64) -> PathBuf {
    let side = (points as f64).cbrt().ceil().max(2.0);
    let root = env!("CARGO_MANIFEST_DIR");
    let axis = |name: &str, field: &str, unit: &str| {
        format!("  - {{name: {name}, field: {field}, values: [1..10 {unit} linear {side}]}}\n")
    };
    let text = format!(
        "name: merged\nworkload: {root}/workloads/language/llama3-8b.yaml\nsystem: {root}/systems/h100-dgx-8.yaml\naxes:\n{}{}{}",
        axis("memory", "system.memory.bandwidth", "TB/s"),
        axis("links", "system.network.dimensions.0.link.bandwidth", "TB/s"),
        axis("capacity", "system.memory.capacity", "TB"),
    );
    let file = folder.join("study.yaml");
    fs::write(&file, text).expect("a study");
    file
}

fn manifest(study: &Study) -> Manifest {
    Manifest {
        study: study.name().to_string(),
        question: None,
        source: None,
        file: study.file().to_string(),
        points: study.count().expect("a count"),
        version: env!("CARGO_PKG_VERSION").to_string(),
        commit: String::new(),
        engines: Vec::new(),
        model_revision: flowspace::study::MODEL_REVISION,
        ended: String::new(),
        inputs: study.files().iter().filter_map(|file| Digest::of(file)).collect(),
        outputs: Vec::new(),
    }
}

/// The header of a part and the fields of one row, from a study of one point.
fn solved(folder: &Path) -> (Vec<String>, Vec<String>) {
    let file = study(folder, 1);
    let options = RunOptions::new(folder.join("one"));
    run(Study::load(&file).expect("a study"), &options).expect("one point");
    let mut reader = csv::Reader::from_path(folder.join("one").join(RESULTS)).expect("results");
    let header: Vec<String> = reader.headers().expect("a header").iter().map(str::to_string).collect();
    let row = reader.records().next().expect("a row").expect("a row");
    header.into_iter().zip(row.iter().map(str::to_string)).filter(|(_, value)| !value.is_empty()).unzip()
}

/// Writes every part, as if it had been worked at.
fn write_parts(plan: &Plan, out: &Path, header: &[String], row: &[String]) -> u64 {
    let tables = |folder: &str| -> Vec<BufWriter<File>> {
        let open =
            |part: u64| BufWriter::new(File::create(out.join(folder).join(format!("{part:05}.csv"))).expect("a part"));
        (0..PARTS).map(open).collect()
    };
    let (mut rows, mut times) = (tables("parts"), tables("timings"));
    rows.iter_mut().for_each(|table| writeln!(table, "{}", header.join(",")).expect("a header"));
    times.iter_mut().for_each(|table| writeln!(table, "point,key,solve_s,finished,solved_now").expect("a header"));
    let labels = plan.study.axes.len();
    let quoted = |text: &str| if text.contains([',', '"']) { format!("{text:?}") } else { text.to_string() };
    let fixed: Vec<String> = row.iter().map(|text| quoted(text)).collect();
    let mut state = 1_u64;
    let mut line = String::new();
    for point in 0..plan.sheet.of.points {
        let part = plan.part_of(point) as usize;
        line.clear();
        let _ = write!(line, "{point}");
        plan.study.labels(point).iter().for_each(|label| {
            let _ = write!(line, ",{label}");
        });
        for (name, text) in header.iter().zip(&fixed).skip(1 + labels) {
            // Other digits of the same length in every row.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match (name.as_str(), text.parse::<f64>()) {
                ("key", _) => {
                    let _ = write!(line, ",{state:016x}{point:016x}");
                }
                (_, Ok(number)) if text.contains('.') => {
                    let _ = write!(line, ",{}", number * (1.0 + (state >> 40) as f64 / (1_u64 << 25) as f64));
                }
                _ => {
                    let _ = write!(line, ",{text}");
                }
            }
        }
        writeln!(rows[part], "{line}").expect("a row");
        writeln!(times[part], "{point},{state:016x}{point:016x},0.01,1,true").expect("a row");
    }
    let written = |tables: Vec<BufWriter<File>>| -> u64 {
        let size = |table: BufWriter<File>| table.into_inner().expect("a table").metadata().expect("its size").len();
        tables.into_iter().map(size).sum()
    };
    written(rows) + written(times)
}

/// Peak memory of the process in MiB, where the operating system tells.
fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    // `cargo test --benches` runs benches with this.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let points = std::env::var("FLOWSPACE_POINTS_MERGED").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let folder = std::env::temp_dir().join(format!("flowspace-merge-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (header, row) = solved(&folder);
    let (file, out) = (study(&folder, points), folder.join("run"));
    let options = PlanOptions { yes: true, reuse: &[], copy: false };
    let plan = parts::plan(&file, &out, |_| PARTS, options, manifest).expect("a plan");
    let bytes = write_parts(&plan, &out, &header, &row);
    println!("{} points in {PARTS} parts, {:.2} GB", plan.sheet.of.points, bytes as f64 / 1e9);
    println!("peak of memory before the merge: {:.0} MiB", peak_mib());
    let clock = Instant::now();
    let merged = plan.merge(&Columns::Filled, Duration::ZERO).expect("a merge");
    let seconds = clock.elapsed().as_secs_f64();
    let Merged::Grid(joined) = merged else { panic!("a grid") };
    let size = fs::metadata(&joined.results).expect("results").len();
    println!(
        "merged {} rows to {:.2} GB in {seconds:.1} s, peak {:.0} MiB",
        joined.rows,
        size as f64 / 1e9,
        peak_mib()
    );
    if parquet::available().is_ok() {
        let clock = Instant::now();
        let typed = parquet::write(&joined.results).expect("a table");
        let (seconds, size) = (clock.elapsed().as_secs_f64(), fs::metadata(typed).expect("its size").len());
        println!("as Parquet {:.2} GB in {seconds:.1} s, peak {:.0} MiB", size as f64 / 1e9, peak_mib());
    }
    fs::remove_dir_all(&folder).expect("nothing left");
}
