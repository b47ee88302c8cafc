//! `flowspace trace info`.

use crate::cli::map::Format;
use crate::cli::{Failure, present, print};
use crate::trace::summary::{Summary, of_file};
use crate::units::{Bytes, Seconds};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `flowspace trace info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Traces: Chakra (.et, JSON, text), PyTorch's execution traces, Kineto's traces, comm_group.json; plain or gzip.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Format of the answer on standard output; JSON is a list with one object a file.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Lines of a list shown as text; JSON has all.
const SHOWN: usize = 30;

/// Reads each file, prints its figures; files that cannot be read are reported after all others.
///
/// # Errors
/// [`Failure`] when a file cannot be read.
pub fn run(args: &InfoArgs) -> Result<i32, Failure> {
    let mut found = Vec::new();
    let mut failures = Vec::new();
    for path in &args.files {
        // One at a time: only the figures are kept.
        match of_file(path) {
            Ok(figures) => match args.format {
                Format::Text => print(&text(&figures)),
                Format::Json => found.push(figures),
            },
            Err(errors) => failures.push(errors.to_string()),
        }
    }
    if args.format == Format::Json {
        let text = serde_json::to_string_pretty(&found).map_err(|e| Failure::input(e.to_string()))?;
        print(&format!("{text}\n"));
    }
    if failures.is_empty() { Ok(0) } else { Err(Failure::input(failures.join("\n"))) }
}

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(String::new, |ns| Seconds(ns as f64 * 1e-9).to_string())
}

fn text(s: &Summary) -> String {
    let mut out = format!("{}: {}", s.file, s.format);
    if let Some(schema) = &s.schema {
        out.push_str(&format!(", schema {schema}"));
    }
    out.push_str(&format!(", {} entries", s.nodes));
    if let Some(span) = s.span_ns {
        out.push_str(&format!(", {}", time(Some(span))));
    }
    out.push('\n');
    let world: Vec<String> = [
        s.backend.clone().map(|b| format!("backend {b}")),
        s.rank.map(|r| format!("rank {r}")),
        s.world_size.map(|w| format!("of {w}")),
    ]
    .into_iter()
    .flatten()
    .chain(s.devices.iter().cloned())
    .collect();
    if !world.is_empty() {
        out.push_str(&format!("{}\n", world.join(", ")));
    }
    out.push_str(&table(
        &["type", "count", "time"],
        s.types.iter().map(|c| vec![c.name.clone(), c.count.to_string(), time(c.total_ns)]),
        &[1, 2],
    ));
    let edges: Vec<String> =
        s.edges.iter().filter(|e| e.count > 0).map(|e| format!("{} {}", e.count, e.name)).collect();
    if !edges.is_empty() {
        out.push_str(&format!("\nedges: {}\n", edges.join(", ")));
    }
    for total in &s.totals {
        out.push_str(&format!("sum of {}: {}\n", total.name, total.count));
    }
    out.push_str(&table(
        &["step", "time"],
        s.steps.iter().map(|p| vec![p.number.to_string(), time(u64::try_from(p.duration_ns).ok())]),
        &[0, 1],
    ));
    out.push_str(&table(
        &["collective", "element", "group", "bytes", "count", "time"],
        s.collectives.iter().map(|c| {
            vec![
                c.kind.clone(),
                c.dtype.clone().unwrap_or_default(),
                c.group.clone().unwrap_or_default(),
                c.bytes.map_or_else(String::new, |b| Bytes(b as f64).to_string()),
                c.count.to_string(),
                time(c.total_ns),
            ]
        }),
        &[3, 4, 5],
    ));
    out.push_str(&table(
        &["group", "description", "size", "ranks"],
        s.groups.iter().map(|g| {
            let ranks: Vec<String> = g.ranks.iter().take(16).map(u64::to_string).collect();
            let more = if g.ranks.len() > 16 { ", ..." } else { "" };
            vec![
                g.name.clone(),
                g.description.clone(),
                g.size.map_or_else(String::new, |n| n.to_string()),
                format!("{}{more}", ranks.join(", ")),
            ]
        }),
        &[2],
    ));
    out.push_str(&table(
        &["attribute", "count"],
        s.attributes.iter().map(|c| vec![c.name.clone(), c.count.to_string()]),
        &[1],
    ));
    if !s.not_kept.is_empty() {
        let list: Vec<String> = s.not_kept.iter().map(|c| format!("{} {:?}", c.count, c.name)).collect();
        out.push_str(&format!("\nnot counted above: {}\n", list.join(", ")));
    }
    for warning in &s.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
    if s.fault_count > 0 {
        out.push_str(&format!("\n{} faults of the graph\n", s.fault_count));
        for fault in &s.faults {
            out.push_str(&format!("  {fault}\n"));
        }
    }
    out.push('\n');
    out
}

/// A table, or nothing where there are no rows.
fn table(header: &[&str], rows: impl ExactSizeIterator<Item = Vec<String>>, right: &[usize]) -> String {
    let count = rows.len();
    if count == 0 {
        return String::new();
    }
    let mut table = present::plain();
    table.set_header(header.iter().copied());
    for row in rows.take(SHOWN) {
        table.add_row(row);
    }
    present::align(&mut table, right);
    let more = if count > SHOWN {
        format!(" ... and {} more (--format json has all)\n", count - SHOWN)
    } else {
        String::new()
    };
    format!("\n{table}\n{more}")
}
