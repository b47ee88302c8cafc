//! Writes a MILP for other solvers: free MPS and CPLEX LP, with the names of the constraint families.

use super::solver::Milp;
use std::io::{BufWriter, Write};
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
    let mps_wanted = path.extension().is_some_and(|e| e == "mps");
    let written = || -> std::io::Result<()> {
        let mut out = BufWriter::new(std::fs::File::create(path)?);
        if mps_wanted {
            mps(milp, title, &mut out)?
        } else {
            lp(milp, title, &mut out)?
        }
        out.flush()
    };
    written()
        .map_err(|e| format!("cannot write {:?}: {}", path.display().to_string(), crate::spec::node::io_reason(&e)))
}

/// Free MPS. The constant stands as the negative right-hand side of the objective row, as the format has it.
fn mps(milp: &Milp, title: &str, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "* {title}\nNAME flowspace\nROWS\n N cost")?;
    for row in &milp.rows {
        writeln!(out, " {} {}", if row.equal { 'E' } else { 'G' }, row.name)?;
    }
    let mut of_column: Vec<Vec<(usize, f64)>> = vec![Vec::new(); milp.columns.len()];
    for (r, row) in milp.rows.iter().enumerate() {
        for (c, a) in &row.terms {
            of_column[*c].push((r, *a));
        }
    }
    writeln!(out, "COLUMNS")?;
    // Three words, no more: with a fourth, readers take the line for a column's entries, and the columns for continuous ones.
    let marker = |integer: bool| format!(" MARKER 'MARKER' '{}'", if integer { "INTORG" } else { "INTEND" });
    let mut integer = false;
    for (c, column) in milp.columns.iter().enumerate() {
        if column.integer != integer {
            integer = column.integer;
            writeln!(out, "{}", marker(integer))?;
        }
        writeln!(out, " {} cost {}", column.name, column.cost)?;
        for (r, a) in &of_column[c] {
            writeln!(out, " {} {} {a}", column.name, milp.rows[*r].name)?;
        }
    }
    if integer {
        writeln!(out, "{}", marker(false))?;
    }
    writeln!(out, "RHS")?;
    if milp.constant != 0.0 {
        writeln!(out, " RHS cost {}", -milp.constant)?;
    }
    for row in milp.rows.iter().filter(|r| r.right != 0.0) {
        writeln!(out, " RHS {} {}", row.name, row.right)?;
    }
    writeln!(out, "BOUNDS")?;
    for column in &milp.columns {
        if column.lower != 0.0 {
            writeln!(out, " LO BND {} {}", column.name, column.lower)?;
        }
        if column.upper.is_finite() {
            writeln!(out, " UP BND {} {}", column.name, column.upper)?;
        } else {
            writeln!(out, " PL BND {}", column.name)?;
        }
    }
    writeln!(out, "ENDATA")
}

/// CPLEX LP. The constant is a column fixed at one.
fn lp(milp: &Milp, title: &str, out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "\\ {title}\nMinimize\n cost:")?;
    for column in milp.columns.iter().filter(|c| c.cost != 0.0) {
        write!(out, "\n {:+} {}", column.cost, column.name)?;
    }
    writeln!(out, "\n {:+} constant\nSubject To", milp.constant)?;
    for row in &milp.rows {
        write!(out, " {}:", row.name)?;
        for (c, a) in &row.terms {
            write!(out, "\n {a:+} {}", milp.columns[*c].name)?;
        }
        // A row needs a term.
        if row.terms.is_empty() {
            write!(out, "\n +0 constant")?;
        }
        writeln!(out, "\n {} {}", if row.equal { "=" } else { ">=" }, row.right)?;
    }
    writeln!(out, "Bounds\n constant = 1")?;
    for column in &milp.columns {
        if column.upper.is_finite() {
            writeln!(out, " {} <= {} <= {}", column.lower, column.name, column.upper)?;
        } else {
            writeln!(out, " {} >= {}", column.name, column.lower)?;
        }
    }
    writeln!(out, "General")?;
    for column in milp.columns.iter().filter(|c| c.integer) {
        writeln!(out, " {}", column.name)?;
    }
    writeln!(out, "End")
}
