//! `flowspace list`: what the catalogue holds, with its main figures.

use super::Failure;
use super::present::{align, plain};
use crate::model::rate::{HALF, chip_peak};
use crate::place::spec::CoresSpec;
use crate::spec::catalogue::{Entry, Kind, entries};
use crate::spec::{FromNode, Loader, Problems, Reader};
use crate::study::Study;
use crate::system::options::ModelOptions;
use crate::system::{Chip, Link, Memory, Stack, SwitchPart, System, Technology};
use crate::validate::coverage::Coverage;
use crate::workload::WorkloadSpec;
use crate::workload::language::LanguageModel;
use clap::{Args, ValueEnum};
use comfy_table::ContentArrangement;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Arguments of `flowspace list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list: chips, memories, links, switches, stacks, cores, technologies, systems, workloads or studies; everything if left out.
    #[arg(value_name = "KIND", value_parser = kind)]
    pub kind: Option<Kind>,
    /// Format on standard output: tables, an object with a list for each kind, or a table of one kind.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Formats of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a person.
    Text,
    /// One JSON object: a list of objects for each kind.
    Json,
    /// Comma-separated values of one kind.
    Csv,
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_word(text).ok_or_else(|| {
        let words: Vec<&str> = Kind::ALL.into_iter().map(Kind::plural).collect();
        super::args::none_of(text, &words)
    })
}

/// A table of one kind: column names with their units, and rows.
struct Listing {
    kind: Kind,
    columns: &'static [&'static str],
    rows: Vec<Vec<Value>>,
}

/// Prints the lists.
///
/// # Errors
/// [`Failure`]: several kinds as CSV; a file of the catalogue that cannot be read.
pub fn run(args: &ListArgs) -> Result<i32, Failure> {
    let kinds = args.kind.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]);
    if args.format == Format::Csv && kinds.len() > 1 {
        return Err(Failure::input("--format csv: a table has one kind; name it, as in `flowspace list chips`"));
    }
    let coverage = Coverage::shipped()?;
    let listings = kinds.into_iter().map(|kind| listing(kind, &coverage)).collect::<Result<Vec<_>, _>>()?;
    super::print(&match args.format {
        Format::Text => text(&listings),
        Format::Json => format!("{:#}\n", to_json(&listings)),
        Format::Csv => listings.iter().map(csv).collect::<Result<String, _>>()?,
    });
    Ok(0)
}

fn of_kind(kind: Kind) -> impl Iterator<Item = &'static Entry> {
    entries().iter().filter(move |entry| entry.kind == kind)
}

fn part<T: FromNode>(entry: &Entry) -> Result<T, Problems> {
    let node = Loader.load(&entry.file(), None)?;
    Reader::read(&Loader.expand_as(&node, "", Some(entry.kind))?)
}

fn listing(kind: Kind, coverage: &Coverage) -> Result<Listing, Problems> {
    let columns: &[&str] = match kind {
        Kind::Chip => &[
            "name",
            "style",
            "peak_tflop_per_s",
            "sram_mib",
            "memory",
            "memory_gib",
            "memory_gb_per_s",
            "power_w",
            "price_usd",
            "validated_error_pct",
            "validated_by",
        ],
        Kind::Memory => &["name", "capacity_gib", "bandwidth_gb_per_s"],
        Kind::Link => &["name", "bandwidth_gb_per_s", "latency_us"],
        Kind::Switch => &["name", "price_usd_per_gb_per_s", "power_w_per_gb_per_s"],
        Kind::Stack => &["name", "software", "attention", "validated_error_pct", "validated_by"],
        Kind::Cores => &["name", "cores", "matrix_gflop_per_s", "memory_gb_per_s", "memory_mib", "network"],
        Kind::Technology => &[
            "name",
            "sram_mib_per_mm2",
            "wafer_price_usd",
            "defects_per_cm2",
            "die_limit_mm2",
            "good_dies_of_100_mm2_pct",
        ],
        Kind::System => {
            &["name", "chips", "chip", "memory", "topology", "sizes", "stack", "validated_error_pct", "validated_by"]
        }
        Kind::Workload => {
            &["name", "kind", "parameters_billion", "layers", "kernels", "seq", "pass", "pflop_per_iteration"]
        }
        Kind::Study => &["name", "points", "axes", "question"],
    };
    let memories = if kind == Kind::Chip { memories_of_chips()? } else { BTreeMap::new() };
    let rows = of_kind(kind).map(|entry| {
        let mut row = vec![json!(entry.name)];
        row.extend(match kind {
            Kind::Chip => chip(entry, memories.get(entry.path).copied())?,
            Kind::Memory => {
                let memory: Memory = part(entry)?;
                vec![figure(memory.capacity.map(|c| c.0 / GIB)), figure(Some(memory.bandwidth.0 / 1e9))]
            }
            Kind::Link => {
                let link: Link = part(entry)?;
                vec![figure(Some(link.bandwidth.0 / 1e9)), figure(Some(link.latency.0 * 1e6))]
            }
            Kind::Switch => {
                let switch: SwitchPart = part(entry)?;
                vec![figure(Some(switch.price.0 * 1e9)), figure(Some(switch.power.0 * 1e9))]
            }
            Kind::Stack => {
                let stack: Stack = part(entry)?;
                vec![json!(stack.name), json!(stack.attention.word())]
            }
            Kind::Cores => cores(entry)?,
            Kind::Technology => technology(entry)?,
            Kind::System => system(entry)?,
            Kind::Workload => workload(entry)?,
            Kind::Study => study(entry)?,
        });
        if columns.contains(&"validated_by") {
            row.extend(validated(entry, coverage)?);
        }
        Ok::<_, Problems>(row)
    });
    Ok(Listing { kind, columns, rows: rows.collect::<Result<_, _>>()? })
}

const GIB: f64 = (1u64 << 30) as f64;

/// Rates and memory of the first of its groups.
fn cores(entry: &Entry) -> Result<Vec<Value>, Problems> {
    let spec: CoresSpec = part(entry)?;
    let first = spec.cores.first();
    let network = match (&spec.network.levels, &spec.network.mesh) {
        (Some(levels), _) => {
            levels.iter().rev().map(|l| l.size.to_string()).collect::<Vec<_>>().join(" x ") + " levels"
        }
        (_, Some(mesh)) => format!("{} x {} mesh", mesh.rows, mesh.columns),
        _ => "distances".into(),
    };
    Ok(vec![
        json!(spec.cores.iter().map(|c| c.count).sum::<u64>()),
        figure(first.map(|c| c.matrix.0 / 1e9)),
        figure(first.map(|c| c.memory_bandwidth.0 / 1e9)),
        figure(first.and_then(|c| c.memory).map(|m| m.0 * 1024.0 / GIB)),
        json!(network),
    ])
}

fn technology(entry: &Entry) -> Result<Vec<Value>, Problems> {
    let t: Technology = part(entry)?;
    Ok(vec![
        figure(Some(t.sram.0 / (1u64 << 20) as f64)),
        figure(Some(t.wafer_price.0)),
        figure(Some(t.defects.0 * 100.0)),
        figure(Some(t.most_area.0)),
        figure(Some(t.yield_of(100.0) * 100.0)),
    ])
}

/// A number to five places, as tables need it; nothing where there is none or it is without limit.
fn figure(value: Option<f64>) -> Value {
    match value.filter(|v| v.is_finite()) {
        Some(value) if value != 0.0 => {
            let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
            let rounded = (value * scale).round() / scale;
            if rounded.fract() == 0.0 && rounded.abs() < 1e15 { json!(rounded as i64) } else { json!(rounded) }
        }
        Some(_) => json!(0),
        None => Value::Null,
    }
}

/// The worst error among the classes that the entry was part of, and all of them.
fn validated(entry: &Entry, coverage: &Coverage) -> Result<[Value; 2], Problems> {
    let errors = coverage.of(entry.path)?;
    let classes: Vec<String> =
        errors.iter().map(|e| format!("{} {}{} %", e.class, if e.measured { "" } else { "within " }, e.pct)).collect();
    Ok([
        figure(errors.first().map(|e| e.pct)),
        if classes.is_empty() { json!("not validated") } else { json!(classes.join(", ")) },
    ])
}

/// The memory of each chip by the chip's path: the largest that is called after it, else the one beside it in a system.
fn memories_of_chips() -> Result<BTreeMap<&'static str, &'static Entry>, Problems> {
    let mut found = BTreeMap::new();
    for system in of_kind(Kind::System) {
        let parts = system.references()?;
        let the = |kind: Kind| parts.iter().map(|(_, _, entry)| *entry).find(|entry| entry.kind == kind);
        if let (Some(chip), Some(memory)) = (the(Kind::Chip), the(Kind::Memory)) {
            found.entry(chip.path).or_insert(memory);
        }
    }
    for chip in of_kind(Kind::Chip) {
        let mut largest = 0.0;
        // Of chips whose names begin alike (`h100`, `h100-nvl`) the longest has it.
        let begins = |memory: &Entry, chip: &Entry| memory.name.starts_with(&format!("{}-", chip.name));
        let of_longer = |memory: &Entry| {
            of_kind(Kind::Chip).any(|other| other.name.len() > chip.name.len() && begins(memory, other))
        };
        for memory in of_kind(Kind::Memory).filter(|m| begins(m, chip) && !of_longer(m)) {
            let capacity = part::<Memory>(memory)?.capacity.map_or(f64::INFINITY, |c| c.0);
            if capacity > largest {
                largest = capacity;
                found.insert(chip.path, memory);
            }
        }
    }
    Ok(found)
}

fn chip(entry: &Entry, memory: Option<&'static Entry>) -> Result<Vec<Value>, Problems> {
    let chip: Chip = part(entry)?;
    let beside: Option<Memory> = memory.map(part).transpose()?;
    Ok(vec![
        json!(chip.style.word()),
        figure(Some(chip_peak(&chip, &ModelOptions::flowspace(), HALF) / 1e12)),
        figure(Some(chip.sram.0 / (1u64 << 20) as f64)),
        memory.map_or(Value::Null, |m| json!(m.name)),
        figure(beside.clone().and_then(|m| m.of_sram(chip.sram).capacity).map(|c| c.0 / GIB)),
        figure(beside.as_ref().map(|m| m.bandwidth.0 / 1e9)),
        figure(Some(chip.power.0)),
        figure(Some(chip.price.0)),
    ])
}

fn system(entry: &Entry) -> Result<Vec<Value>, Problems> {
    let system = System::build(&System::load(&entry.file())?)?;
    let sizes: Vec<String> = system.network.dimensions.iter().map(|d| d.size.to_string()).collect();
    Ok(vec![
        json!(system.chip_count()),
        json!(system.chip.0.name),
        json!(system.memory.0.name),
        json!(system.network.topology.word()),
        if sizes.is_empty() { Value::Null } else { json!(sizes.join(" x ")) },
        system.stack.as_ref().map_or(Value::Null, |s| json!(s.0.name)),
    ])
}

fn workload(entry: &Entry) -> Result<Vec<Value>, Problems> {
    let node = WorkloadSpec::load(&entry.file())?;
    let kind = node.get("kind").map_or(Value::Null, crate::spec::Node::to_json);
    if crate::workload::language::is_language_model(&node) {
        let model: LanguageModel = Reader::read(&node)?;
        return Ok(vec![
            kind,
            figure(Some(model.parameters().total() / 1e9)),
            json!(model.layers),
            Value::Null,
            json!(model.seq),
            json!(model.pass.word()),
            Value::Null,
        ]);
    }
    let workload = WorkloadSpec::build(&node)?;
    // Tables of recommendation models are no weights of kernels, and factorisations have none.
    let learns = matches!(kind.as_str(), Some("dfmodel_layer" | "mamba" | "hyena"));
    let repeat = |block: usize| workload.blocks.get(block).map_or(workload.repeat, |b| b.repeat) as f64;
    let own = workload.kernels.iter().filter(|k| k.owns_weight());
    let weights: f64 = own.map(|k| k.weight_elements() * repeat(k.block)).sum();
    let parameters = (learns && weights > 0.0).then_some(weights / 1e9);
    let stated = |field: &str| node.get(field).map_or(Value::Null, crate::spec::Node::to_json);
    Ok(vec![
        kind,
        figure(parameters),
        json!(workload.repeat),
        json!(workload.kernels.len()),
        stated("seq"),
        stated("pass"),
        figure(Some(workload.flop_per_iteration() / 1e15)),
    ])
}

fn study(entry: &Entry) -> Result<Vec<Value>, Problems> {
    let study = Study::load(&entry.file())?;
    let axes: Vec<&str> = study.axis_names().collect();
    Ok(vec![json!(study.count()), json!(axes.join(", ")), json!(study.spec.question)])
}

/// What a table of text does not show: it has to fit a terminal.
const LEFT_OUT_OF_TEXT: [&str; 2] = ["memory", "question"];

fn text(listings: &[Listing]) -> String {
    let mut out = String::new();
    for listing in listings {
        let shown: Vec<usize> = (0..listing.columns.len())
            .filter(|i| listings.len() == 1 || !LEFT_OUT_OF_TEXT.contains(&listing.columns[*i]))
            .collect();
        let mut table = plain();
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(shown.iter().map(|i| heading(listing.columns[*i])));
        for row in &listing.rows {
            table.add_row(shown.iter().map(|i| row.get(*i).map_or(String::new(), cell)));
        }
        let numbers = |i: &usize| listing.rows.iter().any(|row| row.get(*i).is_some_and(Value::is_number));
        let right: Vec<usize> = shown.iter().enumerate().filter(|(_, i)| numbers(i)).map(|(at, _)| at).collect();
        align(&mut table, &right);
        if listings.len() > 1 {
            out.push_str(&format!("{} ({})\n", listing.kind.plural(), listing.rows.len()));
        }
        out.push_str(&format!("{table}\n"));
        if listings.len() > 1 {
            out.push('\n');
        }
    }
    if listings.iter().any(|l| l.columns.contains(&"validated_by")) {
        out.push_str(
            "validated: mean absolute error of the classes of measurements that were predicted with it (flowspace validate)\n",
        );
    }
    out.push_str(
        "flowspace show NAME prints a file to copy; --system, --workload, `chip:` and the like take these names\n",
    );
    out
}

/// A column's name for people: `peak TFLOP/s`.
fn heading(column: &str) -> String {
    let (what, unit) =
        UNITS.iter().find_map(|(end, unit)| column.strip_suffix(end).map(|what| (what, *unit))).unwrap_or((column, ""));
    let what = what.replace('_', " ");
    if unit.is_empty() { what } else { format!("{what} {unit}").trim().to_string() }
}

/// Ends of columns' names, and the units they stand for; longer ones first.
const UNITS: [(&str, &str); 15] = [
    ("_mib_per_mm2", "MiB/mm2"),
    ("_per_cm2", "/ cm2"),
    ("_usd_per_gb_per_s", "$/(GB/s)"),
    ("_w_per_gb_per_s", "W/(GB/s)"),
    ("_tflop_per_s", "TFLOP/s"),
    ("_gb_per_s", "GB/s"),
    ("pflop_per_iteration", "PFLOP/iteration"),
    ("_billion", "/ 1e9"),
    ("_mm2", "mm2"),
    ("_gib", "GiB"),
    ("_mib", "MiB"),
    ("_us", "us"),
    ("_w", "W"),
    ("_usd", "$"),
    ("_pct", "%"),
];

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn to_json(listings: &[Listing]) -> Value {
    let table = |listing: &Listing| -> Value {
        let object = |row: &Vec<Value>| {
            let entries = listing.columns.iter().map(ToString::to_string).zip(row.iter().cloned());
            Value::Object(entries.collect::<Map<_, _>>())
        };
        listing.rows.iter().map(object).collect()
    };
    Value::Object(listings.iter().map(|l| (l.kind.plural().to_string(), table(l))).collect())
}

fn csv(listing: &Listing) -> Result<String, Failure> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let failed = |e: &dyn std::fmt::Display| Failure::input(format!("cannot write the table: {e}"));
    writer.write_record(listing.columns).map_err(|e| failed(&e))?;
    for row in &listing.rows {
        writer.write_record(row.iter().map(cell)).map_err(|e| failed(&e))?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}
