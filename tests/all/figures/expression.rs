//! Expressions over the answers of commands, and how their results are written.
//!
//! ```text
//! sum     = product { (" + " | " - ") product }
//! product = term { (" * " | " / ") term }
//! term    = number | "( " sum " )" | [ID "@"] place
//! place   of JSON   a.b[2].c   a.list[name=x].c   a.# (how many)
//!         of a CSV  column{axis=label,other!=label}  count{...}  max:column{...}  min:  sum:  median:
//!         of text   word:3{text of the line}         the third word of the first line that has the text
//! ```
//!
//! Formats: `.1f` decimals, `.4g` significant digits, `,` thousands apart, `.1%` per cent, `+` before them the sign always, `text` as it stands.

use serde_json::Value;
use std::collections::BTreeMap;

/// The answer of a command.
#[derive(Debug, Clone)]
pub enum Data {
    /// JSON.
    Json(Value),
    /// Rows of a CSV.
    Table(Vec<BTreeMap<String, String>>),
    /// Anything else.
    Text(String),
}

type Lookup<'l> = dyn FnMut(&str) -> Result<Data, String> + 'l;

/// The text of an expression over `first`'s answer, written in `format`.
pub fn text(expression: &str, format: &str, first: &str, lookup: &mut Lookup<'_>) -> Result<String, String> {
    if format == "text" {
        return place(expression.trim(), first, lookup);
    }
    let tokens = tokens(expression);
    let mut at = 0;
    let value = sum(&tokens, &mut at, first, lookup)?;
    if at < tokens.len() {
        return Err(format!("cannot read {:?}", tokens[at..].join(" ")));
    }
    write(value, format)
}

/// Words apart at spaces outside braces and brackets.
fn tokens(expression: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut depth = 0;
    for c in expression.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        match found.last_mut() {
            Some(last) if !(c == ' ' && depth == 0) => last.push(c),
            _ => found.push(String::new()),
        }
    }
    found.retain(|t| !t.is_empty());
    found
}

fn sum(tokens: &[String], at: &mut usize, first: &str, lookup: &mut Lookup<'_>) -> Result<f64, String> {
    let mut value = product(tokens, at, first, lookup)?;
    while let Some(sign @ ("+" | "-")) = tokens.get(*at).map(String::as_str) {
        *at += 1;
        let next = product(tokens, at, first, lookup)?;
        value += if sign == "+" { next } else { -next };
    }
    Ok(value)
}

fn product(tokens: &[String], at: &mut usize, first: &str, lookup: &mut Lookup<'_>) -> Result<f64, String> {
    let mut value = term(tokens, at, first, lookup)?;
    while let Some(sign @ ("*" | "/")) = tokens.get(*at).map(String::as_str) {
        *at += 1;
        let next = term(tokens, at, first, lookup)?;
        value = if sign == "*" { value * next } else { value / next };
    }
    Ok(value)
}

fn term(tokens: &[String], at: &mut usize, first: &str, lookup: &mut Lookup<'_>) -> Result<f64, String> {
    let token = tokens.get(*at).ok_or("the expression ends too early")?;
    *at += 1;
    if token == "(" {
        let value = sum(tokens, at, first, lookup)?;
        *at += 1;
        return if tokens.get(*at - 1).is_some_and(|t| t == ")") { Ok(value) } else { Err("a ) is missing".into()) };
    }
    if let Ok(number) = token.parse() {
        return Ok(number);
    }
    let found = place(token, first, lookup)?;
    found.replace(['_', ',', '$'], "").parse().map_err(|_| format!("{token} is {found:?}, no number"))
}

fn place(token: &str, first: &str, lookup: &mut Lookup<'_>) -> Result<String, String> {
    let (id, place) = token.split_once('@').unwrap_or((first, token));
    match lookup(id)? {
        Data::Json(value) => json(&value, place),
        Data::Table(rows) => column(&rows, place),
        Data::Text(text) => word(&text, place),
    }
}

fn json(value: &Value, path: &str) -> Result<String, String> {
    let mut here = value;
    for step in path.replace('[', ".[").split('.').filter(|s| !s.is_empty()) {
        let next = match step.strip_prefix('[').and_then(|s| s.strip_suffix(']')) {
            Some(filter) => match filter.split_once('=') {
                Some((key, wanted)) => {
                    let fits = |v: &&Value| v.get(key).is_some_and(|v| plain(v) == wanted);
                    here.as_array().and_then(|items| items.iter().find(fits))
                }
                None => filter.parse::<usize>().ok().and_then(|i| here.get(i)),
            },
            None if step == "#" => {
                return Ok(here
                    .as_array()
                    .map_or_else(|| here.as_object().map_or(0, |o| o.len()), Vec::len)
                    .to_string());
            }
            None => here.get(step),
        };
        here = next.ok_or_else(|| format!("the answer has no {step} of {path}"))?;
    }
    Ok(plain(here))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Whether a row has what a filter asks for.
pub fn fits(row: &BTreeMap<String, String>, filters: &str) -> Result<bool, String> {
    for filter in filters.split(',').filter(|f| !f.trim().is_empty()) {
        let get =
            |key: &str| row.get(key.trim()).map(String::as_str).ok_or_else(|| format!("there is no column {key:?}"));
        let number = |text: &str| text.trim().parse::<f64>().unwrap_or(f64::NAN);
        let holds = if let Some((key, other)) = filter.split_once("!=") {
            get(key)? != other.trim()
        } else if let Some((key, least)) = filter.split_once('>') {
            number(get(key)?) > number(least)
        } else if let Some((key, wanted)) = filter.split_once('=') {
            get(key)? == wanted.trim()
        } else {
            return Err(format!("cannot read the filter {filter:?}"));
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

fn column(rows: &[BTreeMap<String, String>], place: &str) -> Result<String, String> {
    let (what, filters) = place.split_once('{').map_or((place, ""), |(w, f)| (w, f.trim_end_matches('}')));
    let mut chosen = Vec::new();
    for row in rows {
        if fits(row, filters)? {
            chosen.push(row);
        }
    }
    if what == "count" {
        return Ok(chosen.len().to_string());
    }
    let (how, name) = what.split_once(':').unwrap_or(("", what));
    let cells: Vec<&str> = chosen.iter().filter_map(|row| row.get(name)).map(String::as_str).collect();
    if how.is_empty() {
        return match cells.as_slice() {
            [only] => Ok((*only).to_string()),
            other => Err(format!("{} rows have a {name} for {{{filters}}}, expected one", other.len())),
        };
    }
    let mut numbers: Vec<f64> = cells.iter().filter_map(|c| c.parse().ok()).collect();
    numbers.sort_by(f64::total_cmp);
    let value = match (how, numbers.as_slice()) {
        (_, []) => return Err(format!("no row has a number under {name} for {{{filters}}}")),
        ("max", [.., last]) => *last,
        ("min", [first, ..]) => *first,
        ("sum", all) => all.iter().sum(),
        ("median", all) => (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0,
        _ => return Err(format!("there is no {how}: of a column")),
    };
    Ok(value.to_string())
}

fn word(text: &str, place: &str) -> Result<String, String> {
    let wrong = || format!("expected word:N{{text of the line}} of a text, found {place}");
    let (number, wanted) = place.strip_prefix("word:").and_then(|r| r.split_once('{')).ok_or_else(wrong)?;
    let (number, wanted) = (number.parse::<usize>().map_err(|_| wrong())?, wanted.trim_end_matches('}'));
    let line =
        text.lines().find(|l| l.contains(wanted)).ok_or_else(|| format!("no line of the answer has {wanted:?}"))?;
    let word = line.split_whitespace().nth(number.saturating_sub(1));
    word.map(|w| w.trim_end_matches([',', ';', ')', '%']).trim_start_matches('(').to_string())
        .ok_or_else(|| format!("{line:?} has no word {number}"))
}

/// A number as the documents write it.
pub fn write(value: f64, format: &str) -> Result<String, String> {
    let (sign, format) =
        format.strip_prefix('+').map_or(("", format), |rest| (if value >= 0.0 { "+" } else { "" }, rest));
    let digits = |suffix: char| {
        format.strip_prefix('.').and_then(|f| f.strip_suffix(suffix)).and_then(|n| n.parse::<usize>().ok())
    };
    let body = if let Some(n) = digits('f') {
        format!("{value:.n$}")
    } else if let Some(n) = digits('%') {
        format!("{:.n$}", value * 100.0)
    } else if let Some(n) = digits('g') {
        significant(value, n)
    } else if format == "," {
        grouped(value.round())
    } else {
        return Err(format!("there is no format {format:?}"));
    };
    Ok(format!("{sign}{body}"))
}

/// `value` with `n` significant digits, without an exponent.
pub fn significant(value: f64, n: usize) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = format!("{:.*e}", n.saturating_sub(1), value)
        .split('e')
        .nth(1)
        .and_then(|e| e.parse::<i64>().ok())
        .unwrap_or(0);
    let decimals = usize::try_from(n as i64 - 1 - magnitude).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// A whole number with commas between thousands.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

#[test]
fn expressions_by_hand() {
    let row =
        |name: &str, gap: &str| BTreeMap::from([("name".to_string(), name.to_string()), ("gap".into(), gap.into())]);
    let table = Data::Table(vec![row("a", "0.5"), row("b", "1.5"), row("c", "4")]);
    let mut lookup = move |id: &str| match id {
        "t" => Ok(table.clone()),
        "j" => Ok(Data::Json(serde_json::json!({ "x": { "y": [1, 2] }, "l": [{ "n": "p", "v": 7 }] }))),
        "s" => Ok(Data::Text("first line\nstatus: gap 0.25, done".into())),
        _ => Err("no such source".into()),
    };
    for (expression, format, expected) in [
        ("count{gap>1}", ".0f", "2"),
        ("median:gap", ".1f", "1.5"),
        ("gap{name=b} * 2 + 1", ".2f", "4.00"),
        ("( j@x.y[1] - j@x.y[0] ) / j@l[n=p].v", ".1%", "14.3"),
        ("max:gap * 1000000", ",", "4,000,000"),
        ("j@l[n=p].n", "text", "p"),
        ("j@x.y.# + j@x.#", ".0f", "3"),
        ("s@word:3{status}", "+.1f", "+0.2"),
        ("0.000012345", ".3g", "0.0000123"),
        ("1234.5", ".4g", "1234"),
    ] {
        assert_eq!(text(expression, format, "t", &mut lookup).as_deref(), Ok(expected), "{expression}");
    }
    for wrong in ["gap", "gap{name=z}", "max:none", "x@y", "1 +", "( 1"] {
        assert!(text(wrong, ".1f", "t", &mut lookup).is_err(), "{wrong}");
    }
}
