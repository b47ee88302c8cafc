//! One file to send: a study's results as a page that needs nothing else.
//!
//! The page is `page.html` with the style sheet and the scripts of this folder and the table as JSON, nothing from outside: its policy
//! forbids every address. Scripts make elements and set their text; no text of a table is ever read as HTML. [`front`] says which rows no other beats.

use super::csv::{COLUMNS, LEADING, is_fixed, number};
use super::manifest::{self, Digest, Manifest};
use super::plot::Better;
use super::table::{Table, TableError};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::path::Path;

pub mod front;

/// Name of the page in the folder of a study.
pub const REPORT: &str = "report.html";
/// Most rows of a page: a browser draws so many without delay.
pub const MOST_ROWS: usize = 20_000;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 6] = [
    include_str!("table.js"),
    include_str!("dom.js"),
    include_str!("scatter.js"),
    include_str!("heatmap.js"),
    include_str!("point.js"),
    include_str!("page.js"),
];

/// Columns without use on a page: texts that stand elsewhere on it, and those that are of the search and not of the design.
const NOT_SHOWN: [&str; 3] = ["heatmap", "key", "seed"];
/// Columns whose numbers a page has in full: fronts are over them. All others are rounded.
const IN_FULL: [&str; 16] = [
    "samples_per_s",
    "tokens_per_s",
    "generated_per_s",
    "iteration_s",
    "utilization",
    "cost_usd",
    "power_w",
    "energy_j",
    "ttft_s",
    "last_ttft_s",
    "tpot_s",
    "samples_per_s_per_musd",
    "samples_per_s_per_mw",
    "j_per_sample",
    "j_per_token",
    "objective",
];
/// Digits of the numbers that are rounded.
const DIGITS: usize = 6;
/// From so many rows on only the objectives are in full, and numbers that would be longer as digits have five of them.
const MANY_ROWS: usize = 2_000;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The table, or what lies beside it, cannot be used.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The table has a header alone.
    #[error("nothing to report: the table has a header and no rows")]
    NoRows,
    /// More rows than a page can hold.
    #[error(
        "{rows} rows: a report holds {MOST_ROWS} at most; `search:` in the study solves what its front needs, and `flowspace plot` draws any number"
    )]
    TooMany {
        /// The rows.
        rows: usize,
    },
}

/// The page of a table of results. Beside it may lie the manifest and the proof of a front, which are believed as far as their digests hold.
///
/// # Errors
/// [`ReportError`]: no results of a study, or too many.
pub fn page(table: &Table) -> Result<String, ReportError> {
    let data = data(table)?;
    let title = data.get("title").and_then(Json::as_str).unwrap_or_default();
    let scripts = SCRIPTS.concat();
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + scripts.len() + (1 << 20));
    // What is put in is not looked through for further marks.
    let mut rest = PAGE;
    for (mark, text) in [
        ("{{title}}", escaped(title)),
        ("{{style}}", STYLE.to_string()),
        ("{{data}}", in_script(&data.to_string())),
        ("{{scripts}}", scripts),
    ] {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(&text);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON inside a script element, which `</script>` or `<!--` in a name would end: `<` stands in strings alone, and may be written by its number.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// All that the page shows.
fn data(table: &Table) -> Result<Json, ReportError> {
    let axes = table.axes()?;
    if table.is_empty() {
        return Err(ReportError::NoRows);
    }
    if table.len() > MOST_ROWS {
        return Err(ReportError::TooMany { rows: table.len() });
    }
    let manifest = Manifest::beside(&table.path)?;
    let vouched = manifest.as_ref().is_some_and(|m| m.is_of(&table.path));
    let pair = front::pair(table)?;
    let many = table.len() >= MANY_ROWS;
    let mut exact: Vec<&str> = if many { Vec::new() } else { IN_FULL.to_vec() };
    let chosen = pair.iter().flat_map(|pair| [pair.x.as_str(), pair.y.as_str()]);
    exact.extend(chosen.filter(|name| many || !IN_FULL.contains(name)));
    let mut columns = vec![column(table, LEADING.0, LEADING.1, None, true)?];
    for axis in &axes {
        columns.push(column(table, axis, "Axis of the study.", None, table.numbers(axis).is_ok())?);
    }
    let amounts = |name: &&String| {
        **name != LEADING.0 && !axes.contains(&name.as_str()) && !is_fixed(name) && table.numbers(name).is_ok()
    };
    for name in table.header().iter().filter(amounts) {
        columns.push(column(table, name, "Labels of an axis, in the base unit.", None, true)?);
    }
    for known in COLUMNS.iter().filter(|c| !NOT_SHOWN.contains(&c.name)) {
        columns.push(column(table, known.name, known.doc, known.better, known.is_number())?);
    }
    let columns: Vec<Json> =
        columns.into_iter().flatten().map(|c| c.json(exact.contains(&c.name.as_str()), many)).collect();
    let first = |name: &str| -> Result<String, TableError> {
        Ok(table.texts(name)?.first().copied().unwrap_or_default().to_string())
    };
    Ok(json!({
        "title": first("study")?,
        "rows": table.len(),
        "axes": axes,
        "columns": columns,
        "exact": exact,
        "digits": if many { 5 } else { DIGITS },
        "heatmap": first("heatmap")?,
        "pair": pair.map(|pair| json!({ "x": pair.x, "y": pair.y })),
        "proof": if vouched { front::proof(&table.path, manifest.as_ref())? } else { Json::Null },
        "manifest": manifest,
        "vouched": vouched,
        "table": Digest::of(&table.path).map(|digest| digest.blake3),
        "made": { "version": env!("CARGO_PKG_VERSION"), "date": manifest::now() },
    }))
}

/// A column of a page.
struct Column<'t> {
    name: String,
    doc: &'t str,
    better: Option<Better>,
    is_number: bool,
    texts: Vec<&'t str>,
}

/// A column; `None` where it is empty in every row.
fn column<'t>(
    table: &'t Table,
    name: &str,
    doc: &'t str,
    better: Option<Better>,
    is_number: bool,
) -> Result<Option<Column<'t>>, TableError> {
    let texts = table.texts(name)?;
    if texts.iter().all(|text| text.is_empty()) {
        return Ok(None);
    }
    if is_number {
        table.numbers(name)?;
    }
    Ok(Some(Column { name: name.to_string(), doc, better, is_number, texts }))
}

impl Column<'_> {
    /// Its values in the shortest way (times of partitions of `many` rows: [`Levels`]): one after another (`v`), or the distinct ones (`d`) and the position of each row's (`i`), or (of `many` rows)
    /// as [`singles`], the lowest byte first, in base 64 (`f`), where not a number stands for no value.
    fn json(&self, exact: bool, many: bool) -> Json {
        let mut out = Map::new();
        out.insert("n".into(), json!(self.name));
        out.insert("h".into(), json!(self.doc));
        if let Some(better) = self.better {
            out.insert("b".into(), json!(better.word()));
        }
        if self.is_number {
            out.insert("num".into(), json!(true));
        }
        let texts: Vec<String> = self
            .texts
            .iter()
            .map(|text| match (self.is_number, self.name.as_str()) {
                (true, _) if exact => text.trim().to_string(),
                (true, _) => rounded(text, DIGITS),
                (false, "partition_times_s") => text
                    .split('|')
                    .map(|part| {
                        part.split('/').map(|t| rounded(t, if many { 3 } else { 4 })).collect::<Vec<_>>().join("/")
                    })
                    .collect::<Vec<_>>()
                    .join("|"),
                (false, _) => (*text).to_string(),
            })
            .collect();
        let mut position: HashMap<&str, usize> = HashMap::new();
        let mut distinct: Vec<&str> = Vec::new();
        let of: Vec<usize> = texts
            .iter()
            .map(|text| {
                *position.entry(text).or_insert_with(|| {
                    distinct.push(text);
                    distinct.len() - 1
                })
            })
            .collect();
        if let Some(levels) = (many && self.name == "partition_times_s").then(|| Levels::of(&texts)).flatten() {
            out.insert("low".into(), json!(levels.low));
            out.insert("high".into(), json!(levels.high));
            out.insert("t".into(), texts.iter().map(|text| levels.write(text)).collect());
            return Json::Object(out);
        }
        let value = |text: &str| -> Json {
            match self.is_number {
                // As it stands: a JSON number in the digits of the table.
                true => text.parse::<f64>().ok().filter(|v| v.is_finite()).map_or(Json::Null, json_number),
                false => json!(text),
            }
        };
        let characters = |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| text.len() + 1).sum::<usize>();
        let in_order = characters(&mut texts.iter().map(String::as_str));
        let apart =
            characters(&mut distinct.iter().copied()) + of.iter().map(|i| i.to_string().len() + 1).sum::<usize>();
        let singles: Option<Vec<u8>> = (many && self.is_number && !exact).then(|| singles(&self.texts)).flatten();
        let packed = singles.filter(|bytes| bytes.len() / 3 * 4 < apart.min(in_order));
        if distinct.len() == 1 {
            out.insert("c".into(), value(distinct[0]));
        } else if let Some(bytes) = packed {
            out.insert("f".into(), json!(base64(&bytes)));
        } else if apart < in_order {
            out.insert("d".into(), distinct.iter().map(|text| value(text)).collect());
            out.insert("i".into(), json!(of));
        } else {
            out.insert("v".into(), texts.iter().map(|text| value(text)).collect());
        }
        Json::Object(out)
    }
}

/// Numbers as the upper three bytes of single precision, rounded (a sign, 8 bits of exponent, 15 of the fraction: within 2e-5); `None` where one of
/// them is out of its range.
fn singles(texts: &[&str]) -> Option<Vec<u8>> {
    let single = |text: &&str| match text.trim() {
        "" => Some(f32::NAN.to_bits() >> 8),
        text => {
            let value: f32 = text.parse().ok()?;
            let rounded = value.to_bits().checked_add(0x80)? & !0xff;
            let back = f32::from_bits(rounded);
            // What is too small to be written so is not nothing.
            let nothing = text.parse::<f64>() == Ok(0.0);
            (back.is_finite() && (nothing || back.abs() >= f32::MIN_POSITIVE)).then_some(rounded >> 8)
        }
    };
    let bits = texts.iter().map(single).collect::<Option<Vec<u32>>>()?;
    Some(bits.into_iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(3)).collect())
}

/// Times of partitions (`1/2/3/4|...`) as levels between the shortest and the longest, even steps of their logarithm in two digits of base 64; `-` is no time.
struct Levels {
    low: f64,
    high: f64,
}

impl Levels {
    /// The highest: two digits of base 64 hold it.
    const TOP: f64 = 4095.0;

    /// `None` where something is no time, or all are nothing.
    fn of(texts: &[String]) -> Option<Self> {
        let mut found = Self { low: f64::INFINITY, high: 0.0 };
        for time in texts.iter().filter(|text| !text.is_empty()).flat_map(|text| text.split(['|', '/'])) {
            let time: f64 = time.parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0)?;
            if time > 0.0 {
                (found.low, found.high) = (found.low.min(time), found.high.max(time));
            }
        }
        (found.high > 0.0).then_some(found)
    }

    fn write(&self, text: &str) -> String {
        let span = (self.high / self.low).ln();
        let level = |time: f64| match (time > 0.0, span > 0.0) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 1 + ((Self::TOP - 1.0) * (time / self.low).ln() / span).round() as u32,
        };
        let times = text.split(['|', '/']).filter(|time| !time.is_empty());
        let levels = times.map(|time| level(time.parse().unwrap_or(0.0)));
        let digit = |level: u32| char::from(DIGITS_64[(level & 63) as usize]);
        // No time is the most frequent one.
        levels.fold(String::new(), |mut out, level| {
            match level {
                0 => out.push('-'),
                level => out.extend([digit(level >> 6), digit(level)]),
            }
            out
        })
    }
}

/// The digits of base 64 (RFC 4648).
const DIGITS_64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes in base 64.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = DIGITS_64[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i > group.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

/// A number without the `.0` of whole ones.
fn json_number(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

/// A number in so many digits; whole ones below 10^9, and what is no number, as they are.
fn rounded(text: &str, digits: usize) -> String {
    match text.trim().parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && value.abs() < 1e9 => number(value),
        Ok(value) if value.is_finite() => {
            let places = digits - 1;
            number(format!("{value:.places$e}").parse().unwrap_or(value))
        }
        _ => text.trim().to_string(),
    }
}

/// The page of the table at `path`.
///
/// # Errors
/// [`ReportError`].
pub fn read_page(path: &Path) -> Result<String, ReportError> {
    page(&Table::read(path)?)
}

#[cfg(test)]
mod tests;
