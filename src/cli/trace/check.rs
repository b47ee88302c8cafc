//! `flowspace trace check`: do the ranks of a run fit together?

use crate::cli::map::Format;
use crate::cli::{Failure, present, print};
use crate::trace::runs::{self, Layout, Mismatch, Run};
use crate::units::Bytes;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `flowspace trace check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Folder with the traces PREFIX.RANK.et of one run, or with the host and Kineto traces (JSON) of its ranks; FOLDER/PREFIX where
    /// it has several runs.
    pub run: PathBuf,
    /// Ranks of each group; comm_group.json beside the traces if left out.
    #[arg(long, value_name = "FILE")]
    pub groups: Option<PathBuf>,
    /// Format of the answer on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Mismatches and faults shown as text; JSON has all.
const SHOWN: usize = 50;

/// Loads all ranks, matches what they say, recovers the degrees; exit code 1 when ranks disagree or a graph is at fault.
///
/// # Errors
/// [`Failure`] when files cannot be read.
pub fn run(args: &CheckArgs) -> Result<i32, Failure> {
    let run = runs::load(&args.run, args.groups.as_deref())?;
    let mismatches = runs::check(&run);
    let layout = runs::layout(&run);
    match args.format {
        Format::Text => print(&text(&run, &layout, &mismatches)),
        Format::Json => {
            let faults: Vec<String> = run.faults.iter().map(ToString::to_string).collect();
            let value = serde_json::json!({
                "ranks": run.ranks.len(),
                "nodes": run.ranks.iter().map(|r| r.nodes).sum::<u64>(),
                "groups": run.groups,
                "inferred_groups": run.inferred,
                "parallelism": layout,
                "mismatches": mismatches,
                "faults": faults,
            });
            let text = serde_json::to_string_pretty(&value).map_err(|e| Failure::input(e.to_string()))?;
            print(&format!("{text}\n"));
        }
    }
    Ok(if mismatches.is_empty() && run.faults.is_empty() && layout.differ.is_empty() { 0 } else { 1 })
}

fn text(run: &Run, layout: &Layout, mismatches: &[Mismatch]) -> String {
    let nodes: u64 = run.ranks.iter().map(|r| r.nodes).sum();
    let comms: usize = run.ranks.iter().map(|r| r.comms.len()).sum();
    let mut out = format!(
        "{} ranks, {nodes} nodes, {comms} collectives and messages, {} groups{}\n",
        run.ranks.len(),
        run.groups.len(),
        if run.inferred.is_empty() {
            String::new()
        } else {
            format!(" ({} not listed: their ranks are those that use them)", run.inferred.len())
        }
    );
    if !layout.families.is_empty() {
        let mut table = present::plain();
        table.set_header(["degree", "stride", "groups", "calls of a rank", "bytes of a rank", "likely"]);
        for f in &layout.families {
            let calls: Vec<String> = f.calls.iter().map(|(kind, (count, _))| format!("{count} {kind}")).collect();
            let bytes: u64 = f.calls.values().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
            table.add_row([
                f.size.to_string(),
                f.stride.map_or_else(|| "varies".into(), |s| s.to_string()),
                f.groups.to_string(),
                calls.join(", "),
                Bytes(bytes as f64).to_string(),
                f.role.to_owned(),
            ]);
        }
        present::align(&mut table, &[0, 1, 2, 4]);
        out.push_str(&format!("\n{table}\n"));
    }
    let named: Vec<String> = (layout.degrees.named().into_iter())
        .filter_map(|(name, told)| {
            let value =
                told.map_or_else(|| Some(format!("{} (stated)", layout.stated.get(name)?)), |n| Some(n.to_string()))?;
            Some(format!("{name} {value}"))
        })
        .collect();
    if layout.degrees.tp.is_some() || layout.degrees.pp.is_some_and(|pp| pp > 1) {
        out.push_str(&format!("degrees: {}\n", named.join(", ")));
    }
    for (name, stated, told) in &layout.differ {
        out.push_str(&format!("mismatch ({name}): the files state {stated}, groups and messages tell {told}\n"));
    }
    if layout.rings {
        out.push_str("messages go round in rings: collectives written out as messages, not a pipeline\n");
    }
    for fault in run.faults.iter().take(SHOWN) {
        out.push_str(&format!("fault: {fault}\n"));
    }
    for m in mismatches.iter().take(SHOWN) {
        let group = m.group.as_ref().map_or_else(String::new, |g| format!("group {g}, "));
        let node = m.node.map_or_else(String::new, |n| format!(", node {n}"));
        out.push_str(&format!("mismatch ({}): {group}rank {}{node}: {}\n", m.what, m.rank, m.message));
    }
    out.push_str(&match (mismatches.len() + layout.differ.len(), run.faults.len()) {
        (0, 0) => "the ranks fit together\n".to_owned(),
        (m, f) => format!("{m} mismatches, {f} faults\n"),
    });
    out
}
