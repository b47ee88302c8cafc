//! Writes a MILP for other solvers: free MPS and CPLEX LP, with the names of the constraint families.

use super::solver::Milp;
use std::fmt::Write as _;
use std::path::Path;

/// Formats by file ending.
const ENDINGS: &str = ".mps or .lp";

/// Whether a file's ending names a format.
///
/// # Errors
/// A message when it does not.
pub fn check_name(path: &Path) -> Result<(), String> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("mps" | "lp") => Ok(()),
        _ => Err(format!(
            "cannot tell the format of {:?}: expected a name that ends in {ENDINGS}",
            path.display().to_string()
        )),
    }
}

/// Writes `milp` to `path` in the format of its ending.
///
/// # Errors
/// A message when the ending is neither `.mps` nor `.lp`, or the file cannot be written.
pub fn write(milp: &Milp, title: &str, path: &Path) -> Result<(), String> {
    check_name(path)?;
    let text = if path.extension().is_some_and(|e| e == "mps") { mps(milp, title) } else { lp(milp, title) };
    std::fs::write(path, text)
        .map_err(|e| format!("cannot write {:?}: {}", path.display().to_string(), crate::spec::node::io_reason(&e)))
}

/// Free MPS. The constant stands as the negative right-hand side of the objective row, as the format has it.
fn mps(milp: &Milp, title: &str) -> String {
    let mut out = format!("* {title}\nNAME flowspace\nROWS\n N cost\n");
    for row in &milp.rows {
        let _ = writeln!(out, " {} {}", if row.equal { 'E' } else { 'G' }, row.name);
    }
    let mut of_column: Vec<Vec<(usize, f64)>> = vec![Vec::new(); milp.columns.len()];
    for (r, row) in milp.rows.iter().enumerate() {
        for (c, a) in &row.terms {
            of_column[*c].push((r, *a));
        }
    }
    out.push_str("COLUMNS\n");
    let mut integer = false;
    for (c, column) in milp.columns.iter().enumerate() {
        if column.integer != integer {
            integer = column.integer;
            let _ = writeln!(out, " MARKER MARKER 'MARKER' '{}'", if integer { "INTORG" } else { "INTEND" });
        }
        let _ = writeln!(out, " {} cost {}", column.name, column.cost);
        for (r, a) in &of_column[c] {
            let _ = writeln!(out, " {} {} {a}", column.name, milp.rows[*r].name);
        }
    }
    if integer {
        out.push_str(" MARKER MARKER 'MARKER' 'INTEND'\n");
    }
    out.push_str("RHS\n");
    if milp.constant != 0.0 {
        let _ = writeln!(out, " RHS cost {}", -milp.constant);
    }
    for row in milp.rows.iter().filter(|r| r.right != 0.0) {
        let _ = writeln!(out, " RHS {} {}", row.name, row.right);
    }
    out.push_str("BOUNDS\n");
    for column in &milp.columns {
        if column.lower != 0.0 {
            let _ = writeln!(out, " LO BND {} {}", column.name, column.lower);
        }
        if column.upper.is_finite() {
            let _ = writeln!(out, " UP BND {} {}", column.name, column.upper);
        } else {
            let _ = writeln!(out, " PL BND {}", column.name);
        }
    }
    out.push_str("ENDATA\n");
    out
}

/// CPLEX LP. The constant is a column fixed at one.
fn lp(milp: &Milp, title: &str) -> String {
    let mut out = format!("\\ {title}\nMinimize\n cost:");
    for column in milp.columns.iter().filter(|c| c.cost != 0.0) {
        let _ = write!(out, "\n {:+} {}", column.cost, column.name);
    }
    let _ = writeln!(out, "\n {:+} constant\nSubject To", milp.constant);
    for row in &milp.rows {
        let _ = write!(out, " {}:", row.name);
        for (c, a) in &row.terms {
            let _ = write!(out, "\n {a:+} {}", milp.columns[*c].name);
        }
        let _ = writeln!(out, "\n {} {}", if row.equal { "=" } else { ">=" }, row.right);
    }
    out.push_str("Bounds\n constant = 1\n");
    for column in &milp.columns {
        if column.upper.is_finite() {
            let _ = writeln!(out, " {} <= {} <= {}", column.lower, column.name, column.upper);
        } else {
            let _ = writeln!(out, " {} >= {}", column.name, column.lower);
        }
    }
    out.push_str("General\n");
    for column in milp.columns.iter().filter(|c| c.integer) {
        let _ = writeln!(out, " {}", column.name);
    }
    out.push_str("End\n");
    out
}
