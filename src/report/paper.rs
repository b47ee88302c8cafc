//! Tables of results for papers, in Markdown and LaTeX: the fronts by workload, or every row.

use super::html::front;
use super::plot::short_number;
use super::table::{Table, TableError};
use std::fmt::Write as _;

/// What a table is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Markup {
    /// A table between `|`, as GitHub and pandoc read it.
    Markdown,
    /// A `tabular` with the rules of the package `booktabs`.
    Latex,
}

/// Columns of a table for which none are named, as far as rows have them: beside the axes.
const USUAL: [&str; 13] = [
    "status",
    "samples_per_s",
    "generated_per_s",
    "iteration_s",
    "utilization",
    "cost_usd",
    "power_w",
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "bottleneck",
];

/// Columns among the usual ones that are told only where a row has more than one.
const WHERE_DIVIDED: [&str; 2] = ["cp", "ep"];

/// The rows of the fronts, or with `every` all rows, in `columns`; without any the axes and the usual ones. Numbers have three digits.
///
/// # Errors
/// [`TableError`]: a column that is not there, or no results of a study.
pub fn table(table: &Table, markup: Markup, columns: &[String], every: bool) -> Result<String, TableError> {
    let axes = table.axes()?;
    let mut names: Vec<&str> = columns.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = axes.clone();
        for column in USUAL {
            let divided = WHERE_DIVIDED.contains(&column);
            let tells = |text: &str| {
                if divided { text.parse::<f64>().is_ok_and(|n| n > 1.0) } else { !text.is_empty() }
            };
            if table.texts(column)?.into_iter().any(tells) {
                names.push(column);
            }
        }
    }
    let cells = names.iter().map(|name| table.texts(name)).collect::<Result<Vec<_>, _>>()?;
    let numeric: Vec<bool> = cells.iter().map(|column| column.iter().all(|text| number(text).is_some())).collect();
    let pair = front::pair(table)?;
    let parts: Vec<(String, Vec<usize>)> = match &pair {
        Some(pair) if !every => front::fronts(table, pair)?,
        _ => vec![(String::new(), (0..table.len()).collect())],
    };
    let study = table.texts("study")?.first().copied().unwrap_or_default();
    let several = parts.len() > 1;
    let mut out = String::new();
    for (workload, rows) in &parts {
        let what = match &pair {
            Some(pair) if !every => format!("front of {} and {}", pair.y, pair.x),
            _ => "all points".to_string(),
        };
        let of = if several { format!(", {workload}") } else { String::new() };
        let body: Vec<Vec<String>> = rows
            .iter()
            .map(|row| cells.iter().zip(&numeric).map(|(c, n)| shown(c[*row], *n, markup)).collect())
            .collect();
        write(&mut out, markup, &format!("{study}{of}: {what}"), &names, &numeric, &body);
    }
    Ok(out)
}

/// A number, or nothing.
fn number(text: &str) -> Option<f64> {
    if text.is_empty() { Some(f64::NAN) } else { text.parse().ok() }
}

/// A cell: whole numbers below a million as they are, others in three digits.
fn shown(text: &str, numeric: bool, markup: Markup) -> String {
    let value = text.parse::<f64>().ok().filter(|value| numeric && value.is_finite());
    let text = match value {
        Some(value) if value.fract() == 0.0 && value.abs() < 1e6 => format!("{value}"),
        Some(value) => short_number(value),
        None => text.to_string(),
    };
    escaped(&text, markup)
}

/// A text that the markup does not take for its own signs. Neither has line breaks in a cell.
fn escaped(text: &str, markup: Markup) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match (markup, c) {
            (_, c) if c.is_control() => out.push(' '),
            (Markup::Markdown, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>') => out.extend(['\\', c]),
            (Markup::Latex, '&' | '%' | '$' | '#' | '_' | '{' | '}') => out.extend(['\\', c]),
            (Markup::Latex, '\\') => out.push_str("\\textbackslash{}"),
            (Markup::Latex, '~') => out.push_str("\\textasciitilde{}"),
            (Markup::Latex, '^') => out.push_str("\\textasciicircum{}"),
            (Markup::Latex, '<') => out.push_str("\\textless{}"),
            (Markup::Latex, '>') => out.push_str("\\textgreater{}"),
            (_, c) => out.push(c),
        }
    }
    out
}

fn write(out: &mut String, markup: Markup, title: &str, names: &[&str], numeric: &[bool], body: &[Vec<String>]) {
    let head: Vec<String> = names.iter().map(|name| escaped(name, markup)).collect();
    let title = escaped(title, markup);
    // Writing to a String cannot fail.
    let _ = match markup {
        Markup::Markdown => {
            let rule: Vec<&str> = numeric.iter().map(|n| if *n { "---:" } else { "---" }).collect();
            let lines = body.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect::<String>();
            let gap = if out.is_empty() { "" } else { "\n" };
            write!(out, "{gap}{title}\n\n| {} |\n| {} |\n{lines}", head.join(" | "), rule.join(" | "))
        }
        Markup::Latex => {
            let sides: String = numeric.iter().map(|n| if *n { 'r' } else { 'l' }).collect();
            let lines = body.iter().map(|row| format!("{} \\\\\n", row.join(" & "))).collect::<String>();
            writeln!(
                out,
                "\\begin{{table}}\n\\caption{{{title}}}\n\\begin{{tabular}}{{{sides}}}\n\\toprule\n{} \\\\\n\\midrule\n{lines}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}",
                head.join(" & ")
            )
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_the_markup_are_text() {
        assert_eq!(escaped("a|b_c\nd", Markup::Markdown), "a\\|b\\_c d");
        assert_eq!(
            escaped("5 % & $3_{x}\\~^", Markup::Latex),
            "5 \\% \\& \\$3\\_\\{x\\}\\textbackslash{}\\textasciitilde{}\\textasciicircum{}"
        );
        assert_eq!(
            (shown("1234567.5", true, Markup::Latex), shown("64", true, Markup::Latex)),
            ("1.23M".into(), "64".into())
        );
    }

    #[test]
    fn each_line_has_as_many_cells_as_the_head() {
        let mut out = String::new();
        let body = [vec!["x".to_string(), "1".into()], vec!["y".into(), "2".into()]];
        write(&mut out, Markup::Latex, "t", &["a", "b"], &[false, true], &body);
        assert!(
            out.contains(
                "\\begin{tabular}{lr}\n\\toprule\na & b \\\\\n\\midrule\nx & 1 \\\\\ny & 2 \\\\\n\\bottomrule"
            ),
            "{out}"
        );
        out.clear();
        write(&mut out, Markup::Markdown, "t", &["a", "b"], &[false, true], &body);
        assert_eq!(out, "t\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n| y | 2 |\n");
    }
}
