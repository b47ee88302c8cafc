//! The coverage report of a lowering, for a person and as JSON.

use super::Lowered;
use super::coverage::{Coverage, Shares};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Operators shown in a table for a person.
const MOST_ROWS: usize = 30;

fn percent(x: f64) -> String {
    format!("{:.1} %", 100.0 * x)
}

fn shares(out: &mut String, of: &str, s: &Shares) {
    let _ = writeln!(
        out,
        "of the {of}: FLOP known {}, estimated from a kernel's name {}; bytes known {}; neither {}; collectives {}",
        percent(s.known_flop),
        percent(s.estimated_flop),
        percent(s.known_bytes),
        percent(s.neither),
        percent(s.collective)
    );
}

/// FLOP and bytes by operator, and what is unknown.
pub fn coverage_text(c: &Coverage) -> String {
    let header = ["operator", "kind", "calls", "FLOP", "torch counter", "bytes", "seconds"];
    let rows: Vec<Vec<String>> = c
        .ops
        .iter()
        .take(MOST_ROWS)
        .map(|r| {
            vec![
                r.op.clone(),
                format!("{:?}", r.class).to_lowercase(),
                r.calls.to_string(),
                if r.unknown_flop == r.calls { "unknown".into() } else { r.flop.to_string() },
                r.counted.map_or("-".into(), |n| n.to_string()),
                match r.upper_bound_bytes {
                    0 if r.unknown_bytes == r.calls => "unknown".into(),
                    0 => r.bytes.to_string(),
                    _ => format!("up to {}", r.bytes),
                },
                if c.seconds.is_some() { format!("{:.6}", r.seconds) } else { "-".into() },
            ]
        })
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    rows.iter().for_each(|r| {
        table.add_row(r);
    });
    (2..header.len())
        .filter_map(|i| table.column_mut(i).map(|c| c.set_cell_alignment(CellAlignment::Right)))
        .for_each(drop);
    let mut out = format!("{table}\n");
    if c.ops.len() > MOST_ROWS {
        let _ = writeln!(out, "({} more operators; --format json has them all)", c.ops.len() - MOST_ROWS);
    }
    let _ = writeln!(out, "{} calls, {} FLOP, {} B", c.calls, c.flop, c.bytes);
    if c.upper_bound_bytes > 0 {
        let _ = writeln!(
            out,
            "of these {} B are an upper bound: operators whose meaning is not known may touch only a part of an argument that is far larger than the others",
            c.upper_bound_bytes
        );
    }
    let more: u64 = c.ops.iter().map(|r| r.flop.saturating_sub(r.counted.unwrap_or(0))).sum();
    let less: u64 = c.ops.iter().map(|r| r.counted.unwrap_or(0).saturating_sub(r.flop)).sum();
    let _ = writeln!(
        out,
        "torch.utils.flop_counter: {} FLOP ({more} that it does not count; {less} that it counts too many)",
        c.counted
    );
    shares(&mut out, "calls", &c.of_calls);
    if let (Some(s), Some(seconds)) = (&c.of_time, c.seconds) {
        shares(&mut out, &format!("measured time ({seconds:.6} s)"), s);
    }
    for (part, flop) in &c.by_part {
        let _ = writeln!(out, "{}: {flop} FLOP", format!("{part:?}").to_lowercase());
    }
    out.push_str(&untrusted(c));
    if !c.unknown.is_empty() {
        let how = if c.of_time.is_some() {
            "their kernels keep the recorded time"
        } else {
            "--kineto with the device trace gives their kernels the recorded time"
        };
        let _ = writeln!(out, "unknown operators: {} ({how})", c.unknown.join(", "));
    }
    out
}

/// The share of a step whose callers could not be trusted; nothing if all could.
fn untrusted(c: &Coverage) -> String {
    let Some(u) = c.untrusted else { return String::new() };
    format!(
        "not certain: {} of {} calls ({} of the FLOP) name callers that are not there or that cannot have called them; each is counted by \
         itself, and may be a part of another (--kineto with the device trace of the same run settles it)\n",
        u.calls,
        c.calls,
        percent(u.flop as f64 / (c.flop as f64).max(1.0))
    )
}

/// Degrees of the recording.
fn degrees(l: &Lowered) -> String {
    let p = &l.parallel;
    let mut text = format!("TP {}, DP {}", p.tp, p.dp);
    for (name, degree) in [("PP", p.pp), ("EP", p.ep)] {
        if degree > 1 {
            let _ = write!(text, ", {name} {degree}");
        }
    }
    text
}

/// What became of a trace.
pub fn lowered_text(l: &Lowered) -> String {
    let mut out = String::new();
    let w = &l.workload;
    let _ = writeln!(
        out,
        "{}: {} kernels, {} tensors, repeat {}, {} samples on each of {} replicas; recorded with {}",
        w.name,
        w.kernels.len(),
        w.tensors.len(),
        w.repeat,
        l.batch,
        l.parallel.dp,
        degrees(l)
    );
    if l.microbatches > 1 {
        let _ = writeln!(
            out,
            "{} microbatches of {} samples in the recorded step: the graph is one of them",
            l.microbatches, l.batch
        );
    }
    for f in &l.parallel.recovered.table {
        let ranks = f.ranks.map_or("an unknown number of".into(), |r| r.to_string());
        let _ =
            writeln!(out, "recovered: {}: {} {} among {ranks} ranks, {} B", f.role.name(), f.calls, f.kind, f.bytes);
    }
    let _ = writeln!(out, "unfolded: {} kernels, {:.6e} FLOP a sample", l.unfolded_kernels, l.unfolded_flop);
    if let Some(f) = &l.folded {
        let _ = writeln!(
            out,
            "folded: {} layers of {} kernels hold {:.6e} FLOP a sample ({}); {} kernels outside, {:.6e} FLOP and {:.4e} weights, are left out",
            f.layers,
            f.kernels,
            f.flop,
            percent(f.flop / l.unfolded_flop.max(1.0)),
            f.outside.len(),
            f.outside_flop,
            f.outside_weights
        );
        for b in &f.blocks {
            let _ = writeln!(out, "  block {}: {} of {} kernels", b.name, b.repeat, b.kernels);
        }
        if f.lacking_flop > 0.0 {
            let _ = writeln!(
                out,
                "folded: as if all layers were whole; the first or last lacks {:.4e} FLOP of these in the recording",
                f.lacking_flop
            );
        }
        for (name, flop) in f.outside.iter().filter(|(_, flop)| *flop > 0.0).take(8) {
            let _ = writeln!(out, "  outside: {name}, {flop:.4e} FLOP");
        }
    }
    for (reason, (calls, flop)) in &l.left_out.steps {
        let _ = writeln!(out, "not in the graph: {calls} calls of {reason} ({flop} FLOP of the step)");
    }
    if l.left_out.vector_parameters > 0 {
        let _ = writeln!(
            out,
            "held beside the graph: {} parameters of a rank that are no weight of a product (biases, scales of norms, tables), {:.4e} B on all ranks",
            l.left_out.vector_parameters, l.workload.held_bytes
        );
    }
    if l.left_out.unread_bytes > 0 {
        let _ = writeln!(out, "not in the graph: {} B of second results that no kernel reads", l.left_out.unread_bytes);
    }
    out.push_str(&untrusted(&l.coverage));
    for note in &l.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// The same as one JSON object.
pub fn lowered_json(l: &Lowered) -> Value {
    json!({
        "name": l.workload.name,
        "kernels": l.workload.kernels.len(),
        "repeat": l.workload.repeat,
        "batch": l.batch,
        "microbatches": l.microbatches,
        "tp": l.parallel.tp,
        "dp": l.parallel.dp,
        "pp": l.parallel.pp,
        "ep": l.parallel.ep,
        "recovered": l.parallel.recovered.table,
        "unfolded_kernels": l.unfolded_kernels,
        "unfolded_flop_per_sample": l.unfolded_flop,
        "folded": l.folded,
        "left_out": l.left_out.steps.iter().map(|(reason, (calls, flop))| json!({"what": reason, "calls": calls, "flop": flop})).collect::<Vec<_>>(),
        "vector_parameters": l.left_out.vector_parameters,
        "unread_bytes": l.left_out.unread_bytes,
        "notes": l.notes,
        "coverage": l.coverage,
    })
}
