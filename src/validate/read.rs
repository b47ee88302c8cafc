//! Files of measured points: our columns, vTrain's, and those of `validation/hpl`. A row with a fault is left out and listed with its line and
//! what is wrong in it; only what is no file of points, or has no row that can be read, is refused.

use super::metric::{Metric, Unit};
use super::row::{HplSizes, Origin, Row};
use super::sources::Trained;
use crate::spec::nearest::nearest;
use csv::{ReaderBuilder, StringRecord};
use std::collections::BTreeMap;

/// A column of our files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its header.
    pub name: &'static str,
    /// Whether a row says nothing without it.
    pub needed: bool,
    /// What it holds.
    pub doc: &'static str,
    /// An example.
    pub example: &'static str,
}

const fn needed(name: &'static str, doc: &'static str, example: &'static str) -> Column {
    Column { name, needed: true, doc, example }
}

const fn stated(name: &'static str, doc: &'static str, example: &'static str) -> Column {
    Column { name, needed: false, doc, example }
}

/// The columns of our files.
pub const COLUMNS: [Column; 30] = [
    needed("id", "Name of the point, its own in the file.", "gpt-39b-512"),
    stated(
        "workload",
        "What was run, in words: the model's name, `LLM inference`, a kernel, an operation.",
        "GPT train",
    ),
    stated("params_b", "Parameters as the source prints them, in 1e9.", "39.1"),
    stated("layers", "Layers.", "48"),
    stated("hidden", "Hidden size.", "8192"),
    stated("heads", "Attention heads.", "64"),
    stated("seq", "Tokens of a sample; in inference, of its prompt.", "2048"),
    stated("vocab", "Words of the vocabulary.", "51200"),
    stated("global_batch", "Samples of an iteration; in inference, sequences at once.", "1536"),
    stated("micro_batch", "Samples of a microbatch.", "4"),
    stated(
        "system",
        "The machine, in words; `validation/machines.yaml` lists those that are known. Of a run of HPL a system file, or its name in the catalogue.",
        "Selene (DGX A100)",
    ),
    stated("accelerator", "The chip, in words.", "A100-80GB"),
    stated("chips", "Chips; `0.5` is half a chip.", "512"),
    stated("tp", "Tensor parallelism.", "8"),
    stated("pp", "Pipeline stages.", "2"),
    stated("dp", "Replicas.", "32"),
    stated("interleave", "Pieces of layers of a stage.", "2"),
    stated("recompute", "What is computed again: `none`, `selective`, `full`, or words of the source.", "full"),
    stated("seq_parallel", "Whether sequences are divided among tensor-parallel chips: `yes`, `no`.", "no"),
    stated(
        "trained",
        "What of the model is trained: `all`, `adapters`, `head`; left out, what `partly_trained` of `validation/chips.yaml` says, adapters where the workload or a clause of the notes says LoRA, QLoRA, DoRA or PEFT, else all.",
        "",
    ),
    stated("n", "Order of the matrix, of a run of HPL; left out, what fills 80 % of the machine's memory.", ""),
    stated("nb", "Columns of a panel of HPL; left out, 1024.", ""),
    stated("p", "Rows of HPL's process grid; left out with `q`, searched.", ""),
    stated("q", "Columns of HPL's process grid.", ""),
    needed("metric", "What was measured; [../validation.md](../validation.md) lists the metrics.", "tflops_per_gpu"),
    needed("value", "The figure as printed.", "138"),
    needed("unit", "Its unit.", "TFLOP/s"),
    stated("source", "Where it stands.", "arXiv 2104.04473"),
    stated("confidence", "How sure it is, in words.", "published table"),
    stated("notes", "What else the source says; some phrases are read.", "BF16, ZeRO-1"),
];

/// vTrain's columns; `params_billion` is in one of its files alone.
const VTRAIN: [&str; 11] =
    ["gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq", "tp", "dp", "pp", "iteration_ms"];
/// The columns of `validation/hpl`.
const HPL: [&str; 3] = ["machine", "rmax_pflops", "source"];
/// vTrain's vocabulary (its README).
const VTRAIN_VOCAB: u64 = 51200;
/// Most faults listed: behind these the file is something else.
const MAX_FAULTS: usize = 100;
/// Largest count read, as elsewhere in input files.
const MAX_COUNT: u64 = 1 << 50;

/// A row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// `FILE:LINE`.
    pub at: String,
    /// Its name, where it has one.
    pub id: String,
    /// Every fault: column, what was expected, what was found.
    pub reasons: Vec<String>,
}

/// What is wrong with a file of points.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Faults(pub Vec<String>);

/// A file's points, and remarks on it.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    /// Its rows.
    pub rows: Vec<Row>,
    /// Rows that cannot be read.
    pub refused: Vec<Refused>,
    /// What was left out.
    pub remarks: Vec<String>,
}

/// Whether a quote opens, in the last record, that nothing closes: only at the beginning of a field does one open, and two inside are one of the text.
fn unclosed_quote(bytes: &[u8]) -> bool {
    let (mut open, mut closed, mut begins) = (false, None, true);
    for (at, byte) in bytes.iter().enumerate() {
        match (byte, open) {
            (b'"', false) if begins => open = true,
            // The second of two opens again what the first closed.
            (b'"', true) => (open, closed) = (false, Some(at + 1)),
            (b'"', false) if closed == Some(at) => open = true,
            _ => {}
        }
        begins = matches!(byte, b',' | b'\n' | b'\r');
    }
    open
}

/// Reads the bytes of `file`.
///
/// # Errors
/// All [`Faults`].
pub fn read(file: &str, bytes: &[u8]) -> Result<File, Faults> {
    let one = |message: String| Faults(vec![format!("{file}: {message}")]);
    // Spreadsheet programs put a byte order mark before the header.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(bytes);
    let header: Vec<String> =
        reader.headers().map_err(|e| one(e.to_string()))?.iter().map(|name| name.trim().to_string()).collect();
    let has = |name: &str| header.iter().any(|h| h == name);
    let origin = if VTRAIN.iter().all(|c| has(c)) {
        Origin::Vtrain
    } else if HPL.iter().all(|c| has(c)) {
        Origin::Hpl
    } else if required().all(has) {
        Origin::Ours
    } else {
        return Err(one(unknown_header(&header)));
    };
    let known: &[&str] = match origin {
        Origin::Ours => &COLUMNS.map(|c| c.name),
        Origin::Vtrain => &["params_billion"],
        Origin::Hpl => &["system", "n", "block", "p", "q"],
    };
    let needed: &[&str] = match origin {
        // All of them are among the known ones.
        Origin::Ours => &[],
        Origin::Vtrain => &VTRAIN,
        Origin::Hpl => &HPL,
    };
    let reads = |name: &str| known.contains(&name) || needed.contains(&name);
    let extra: Vec<&str> = header.iter().map(String::as_str).filter(|name| !reads(name)).collect();
    let mut remarks = Vec::new();
    if !extra.is_empty() {
        remarks.push(format!("{file}: columns that are not read: {}", extra.join(", ")));
    }
    let mut counts = BTreeMap::<&str, u64>::new();
    header.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let twice: Vec<String> = counts
        .into_iter()
        .filter(|(name, count)| *count > 1 && !name.is_empty())
        .map(|(name, count)| format!("{file}:1: column {name:?} stands {count} times"))
        .collect();
    if !twice.is_empty() {
        return Err(Faults(twice));
    }
    let mut table = Table { header: &header, faults: Vec::new(), lines: BTreeMap::new() };
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    let mut lines = Lines { bytes, at: 0, line: 1 };
    let open = unclosed_quote(bytes);
    let mut records = reader.byte_records().peekable();
    while let Some(record) = records.next() {
        let record = record.map_err(|e| one(e.to_string()))?;
        let line = lines.of(record.position().map_or(0, csv::Position::byte) as usize);
        let mut refuse = |id: &str, reasons| {
            refused.push(Refused { at: format!("{file}:{line}"), id: id.to_string(), reasons });
        };
        if open && records.peek().is_none() {
            refuse("", vec!["a quote (\") opens here that nothing closes: all that follows is one field".into()]);
            continue;
        }
        let record = match StringRecord::from_byte_record(record) {
            Ok(record) => record,
            Err(error) => {
                refuse("", vec![error.to_string()]);
                continue;
            }
        };
        if record.iter().all(|field| field.trim().is_empty()) {
            continue;
        }
        if record.len() != header.len() {
            refuse("", vec![format!("{} fields, but the header has {}", record.len(), header.len())]);
            continue;
        }
        let row = match origin {
            Origin::Ours => table.ours(&record, line),
            Origin::Vtrain => table.vtrain(&record, line),
            Origin::Hpl => table.hpl(&record, line),
        };
        if table.faults.is_empty() {
            rows.extend(row);
        } else {
            refuse(table.text(&record, "id"), std::mem::take(&mut table.faults));
        }
    }
    if !rows.is_empty() {
        return Ok(File { rows, refused, remarks });
    }
    if refused.is_empty() {
        return Err(one("a header and no points".into()));
    }
    let more = refused.len() > MAX_FAULTS;
    let mut list: Vec<String> = refused
        .iter()
        .take(MAX_FAULTS)
        .flat_map(|row| row.reasons.iter().map(|reason| format!("{}: {reason}", row.at)))
        .collect();
    if more {
        list.push(format!("{file}: further rows are not listed"));
    }
    Err(Faults(list))
}

/// Lines of a file by the byte at which a record begins: the reader counts a record's line before the line break that ends the one before it,
/// which is one too few where lines end in two characters.
struct Lines<'b> {
    bytes: &'b [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line of the record that begins at `byte` or behind the line breaks there; called with rising bytes.
    fn of(&mut self, byte: usize) -> u64 {
        while let Some(c) = self.bytes.get(self.at)
            && (self.at < byte || matches!(c, b'\r' | b'\n'))
        {
            self.line += u64::from(*c == b'\n');
            self.at += 1;
        }
        self.line
    }
}

/// The columns of ours without which a row says nothing.
fn required() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().filter(|c| c.needed).map(|c| c.name)
}

fn unknown_header(header: &[String]) -> String {
    let missing: Vec<&str> = required().filter(|c| !header.iter().any(|h| h == c)).collect();
    let near: Vec<String> = missing
        .iter()
        .filter_map(|m| {
            let names: Vec<&str> = header.iter().map(String::as_str).collect();
            nearest(m, &names).map(|n| format!("{n:?} may be meant for {m:?}"))
        })
        .collect();
    let hint = if near.is_empty() { String::new() } else { format!(" ({})", near.join(", ")) };
    format!(
        "no file of measured points: columns missing: {}{hint}; expected {} (of {}, docs/validation.md), or vTrain's {}",
        missing.join(", "),
        required().collect::<Vec<_>>().join(", "),
        COLUMNS.len(),
        VTRAIN.join(",")
    )
}

struct Table<'t> {
    header: &'t [String],
    /// Faults of the row that is being read.
    faults: Vec<String>,
    /// Where each name of a point stood.
    lines: BTreeMap<String, u64>,
}

impl Table<'_> {
    fn text<'r>(&self, record: &'r StringRecord, column: &str) -> &'r str {
        let at = self.header.iter().position(|h| h == column);
        at.and_then(|i| record.get(i)).unwrap_or_default().trim()
    }

    fn fault(&mut self, column: &str, expected: &str, found: &str) {
        let found = if found.is_empty() { "nothing".into() } else { format!("{found:?}") };
        self.faults.push(format!("{column}: expected {expected}, found {found}"));
    }

    /// A count, or nothing where the field is blank.
    fn count(&mut self, record: &StringRecord, column: &str) -> Option<u64> {
        let text = self.text(record, column);
        if text.is_empty() {
            return None;
        }
        match text.parse::<u64>() {
            Ok(value) if (1..=MAX_COUNT).contains(&value) => Some(value),
            _ => {
                self.fault(column, "a whole number of at least 1, or nothing where it is not stated", text);
                None
            }
        }
    }

    /// A number above zero, or nothing where the field is blank.
    fn number(&mut self, record: &StringRecord, column: &str) -> Option<f64> {
        let text = self.text(record, column);
        if text.is_empty() {
            return None;
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 => Some(value),
            _ => {
                self.fault(column, "a number above zero", text);
                None
            }
        }
    }

    fn needed<T>(&mut self, value: Option<T>, record: &StringRecord, column: &str, expected: &str) -> Option<T> {
        if value.is_none() && self.text(record, column).is_empty() {
            self.fault(column, expected, "");
        }
        value
    }

    fn ours(&mut self, record: &StringRecord, line: u64) -> Option<Row> {
        let id = self.text(record, "id").to_string();
        if id.is_empty() {
            self.fault("id", "a name of the point", "");
        } else if let Some(before) = self.lines.insert(id.clone(), line) {
            self.fault("id", &format!("a name of its own (line {before} has it too)"), &id);
        }
        let word = self.text(record, "metric");
        let metric = Metric::from_word(word);
        if metric.is_none() {
            self.fault("metric", &format!("one of {}", Metric::words()), word);
        }
        let unit = metric.as_ref().and_then(|m| match Unit::read(self.text(record, "unit"), m) {
            Ok(unit) => Some(unit),
            Err(fits) => {
                let found = self.text(record, "unit");
                self.fault("unit", &format!("a unit of {word}: {fits}"), found);
                None
            }
        });
        let value = if metric == Some(Metric::Fits) {
            match self.text(record, "value") {
                "0" => Some(0.0),
                "1" => Some(1.0),
                other => {
                    self.fault("value", "1 (it fits) or 0", other);
                    None
                }
            }
        } else {
            let value = self.number(record, "value");
            self.needed(value, record, "value", "a number above zero")
        };
        if let (Some(Metric::Mfu | Metric::Hfu), Some(unit), Some(value)) = (&metric, &unit, value)
            && value * unit.factor > 1.0
        {
            self.fault("value", "a share of the peak, at most 1 (100 %)", self.text(record, "value"));
        }
        let seq_parallel = match self.text(record, "seq_parallel") {
            "" | "n/a" => None,
            "yes" | "true" => Some(true),
            "no" | "false" => Some(false),
            other => {
                self.fault("seq_parallel", "yes or no", other);
                None
            }
        };
        let trained = match self.text(record, "trained") {
            "" => None,
            word => {
                let found = Trained::from_word(word);
                if found.is_none() {
                    self.fault("trained", "all, adapters or head", word);
                }
                found
            }
        };
        let mut count = |column: &str| self.count(record, column);
        let (layers, hidden, heads, seq) = (count("layers"), count("hidden"), count("heads"), count("seq"));
        let (vocab, global_batch, micro_batch) = (count("vocab"), count("global_batch"), count("micro_batch"));
        let (tp, pp, dp, interleave) = (count("tp"), count("pp"), count("dp"), count("interleave"));
        let hpl = HplSizes { n: count("n"), nb: count("nb"), p: count("p"), q: count("q") };
        // `0.5`: half a chip.
        let share_of_chip = self.text(record, "chips").parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
        let chips = if share_of_chip.is_some() { Some(1) } else { self.count(record, "chips") };
        if hpl.p.is_some() != hpl.q.is_some() {
            let (missing, found) = if hpl.p.is_some() { ("q", "p alone") } else { ("p", "q alone") };
            self.fault(missing, "both sides of the process grid, or neither", found);
        }
        let params_b = self.number(record, "params_b");
        let text = |column: &str| self.text(record, column).to_string();
        Some(Row {
            id,
            line,
            workload: text("workload"),
            params_b,
            layers,
            hidden,
            heads,
            seq,
            vocab,
            global_batch,
            micro_batch,
            system: text("system"),
            accelerator: text("accelerator"),
            chips,
            share_of_chip,
            tp,
            pp,
            dp,
            interleave,
            recompute: text("recompute"),
            seq_parallel,
            trained,
            hpl,
            metric: metric?,
            value: value?,
            unit: unit?,
            source: text("source"),
            confidence: text("confidence"),
            notes: text("notes"),
            origin: Origin::Ours,
        })
    }

    fn vtrain(&mut self, record: &StringRecord, line: u64) -> Option<Row> {
        let mut all = |column: &str| {
            let value = self.count(record, column);
            self.needed(value, record, column, "a whole number of at least 1")
        };
        let (chips, batch, micro) = (all("gpus"), all("global_batch"), all("micro_batch"));
        let (hidden, heads, layers, seq) = (all("hidden"), all("heads"), all("layers"), all("seq"));
        let (tp, dp, pp) = (all("tp"), all("dp"), all("pp"));
        let value = self.number(record, "iteration_ms");
        let value = self.needed(value, record, "iteration_ms", "milliseconds")?;
        let params_b = self.number(record, "params_billion");
        let multi = chips.is_some_and(|c| c > 8);
        Some(Row {
            id: format!("vtrain-{}-{line}", if multi { "multi" } else { "single" }),
            line,
            workload: "GPT train".into(),
            params_b,
            layers,
            hidden,
            heads,
            seq,
            vocab: Some(VTRAIN_VOCAB),
            global_batch: batch,
            micro_batch: micro,
            system: "DGX A100".into(),
            accelerator: "A100-80GB".into(),
            chips,
            share_of_chip: None,
            tp,
            pp,
            dp,
            interleave: None,
            recompute: "full".into(),
            trained: None,
            seq_parallel: Some(false),
            hpl: HplSizes::default(),
            metric: Metric::Time,
            value,
            unit: Unit::MILLISECONDS,
            source: "VIA-Research/vTrain".into(),
            confidence: String::new(),
            notes: String::new(),
            origin: Origin::Vtrain,
        })
    }

    fn hpl(&mut self, record: &StringRecord, line: u64) -> Option<Row> {
        let machine = self.text(record, "machine").to_string();
        if machine.is_empty() {
            self.fault("machine", "the name of a machine", "");
        }
        let value = self.number(record, "rmax_pflops");
        let value = self.needed(value, record, "rmax_pflops", "PFLOP/s");
        let mut count = |column: &str| self.count(record, column);
        let hpl = HplSizes { n: count("n"), nb: count("block"), p: count("p"), q: count("q") };
        let file = self.text(record, "system").to_string();
        Some(Row {
            id: format!("hpl-{machine}"),
            line,
            workload: "HPL".into(),
            params_b: None,
            layers: None,
            hidden: None,
            heads: None,
            seq: None,
            vocab: None,
            global_batch: None,
            micro_batch: None,
            system: if file.is_empty() { machine } else { file },
            accelerator: String::new(),
            chips: None,
            share_of_chip: None,
            tp: None,
            pp: None,
            dp: None,
            interleave: None,
            recompute: String::new(),
            trained: None,
            seq_parallel: None,
            hpl,
            metric: Metric::HplRate,
            value: value?,
            unit: Unit::PETAFLOPS,
            source: self.text(record, "source").to_string(),
            confidence: String::new(),
            notes: String::new(),
            origin: Origin::Hpl,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_kinds_of_files_are_read() {
        let ours = read("a.csv", b"\xef\xbb\xbfid,metric,value,unit,why\na,iteration_time,2,s,x\n\n").unwrap();
        assert_eq!((ours.rows.len(), ours.rows[0].value, ours.rows[0].origin), (1, 2.0, Origin::Ours));
        assert_eq!(ours.remarks, ["a.csv: columns that are not read: why"]);
        let header = "params_billion,gpus,global_batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,iteration_ms";
        let vtrain =
            read("v.csv", format!("{header}\n3.6,64,512,8,3072,32,30,2048,1,64,1,3566.5\n").as_bytes()).unwrap();
        let row = &vtrain.rows[0];
        assert_eq!((row.id.as_str(), row.vocab, row.recompute.as_str()), ("vtrain-multi-2", Some(51200), "full"));
        assert_eq!(row.value * row.unit.factor, 3.5665);
        let hpl = read("h.csv", b"machine,system,n,block,rmax_pflops,source\nsummit,s.yaml,1,1,148.6,x\n").unwrap();
        assert_eq!((hpl.rows[0].id.as_str(), hpl.rows[0].metric.clone()), ("hpl-summit", Metric::HplRate));
    }

    /// What an open quote swallows is told of the row that has it, in its last column too; two quotes inside are one, and one in the middle of a field is a letter.
    #[test]
    fn an_open_quote_is_told() {
        let of = |rows: &str| {
            let file = read("a.csv", format!("id,metric,value,unit\n{rows}").as_bytes()).unwrap();
            let refused: Vec<String> =
                file.refused.iter().map(|r| format!("{} {}", r.at, r.reasons.join("; "))).collect();
            (file.rows.len(), refused)
        };
        let said = |line: u64| {
            vec![format!("a.csv:{line} a quote (\") opens here that nothing closes: all that follows is one field")]
        };
        assert_eq!(
            of("\"a \"\"b\"\"\",iteration_time,1,s\nb,iteration_time,\"1,s\nc,iteration_time,2,s\n"),
            (1, said(3))
        );
        assert_eq!(of("b,iteration_time,1,s\nc,iteration_time,1,\"s\nd,iteration_time,2,s\n"), (1, said(3)));
        assert_eq!(of("a 5\" disk\"\",iteration_time,1,s\n\"b\",iteration_time,\"2\",\"s\"\n"), (2, Vec::new()));
    }

    #[test]
    fn all_faults_come_at_once_with_line_and_column_and_refuse_their_row_alone() {
        let text = "id,layers,metric,value,unit,seq_parallel\na,x,time,1,s,\na,2,tmie,-1,s,maybe\nb,2,mfu,,s,\nc,1\n,1,fits,2,bool,\ne,1,mfu,130,%,\n";
        let Faults(faults) = read("a.csv", text.as_bytes()).unwrap_err();
        let faults = faults.join("\n");
        let more = read("a.csv", format!("{text}f,1,time,3,s,yes\n").replace('\n', "\r\n").as_bytes()).unwrap();
        assert_eq!(more.rows.iter().map(|row| (row.id.as_str(), row.line)).collect::<Vec<_>>(), [("f", 8)]);
        assert_eq!(
            more.refused.iter().map(|row| row.at.as_str()).collect::<Vec<_>>(),
            [2, 3, 4, 5, 6, 7].map(|n| format!("a.csv:{n}"))
        );
        assert_eq!((more.refused[2].id.as_str(), more.refused[2].reasons.len()), ("b", 2));
        for part in [
            "a.csv:2: layers: expected a whole number of at least 1, or nothing where it is not stated, found \"x\"",
            "a.csv:3: id: expected a name of its own (line 2 has it too), found \"a\"",
            "a.csv:3: metric: expected one of iteration_time",
            "a.csv:3: value: expected a number above zero, found \"-1\"",
            "a.csv:3: seq_parallel: expected yes or no, found \"maybe\"",
            "a.csv:4: value: expected a number above zero, found nothing",
            "a.csv:4: unit: expected a unit of mfu: %, 1, found \"s\"",
            "a.csv:5: 2 fields, but the header has 6",
            "a.csv:7: value: expected a share of the peak, at most 1 (100 %), found \"130\"",
            "a.csv:6: id: expected a name of the point, found nothing",
            "a.csv:6: value: expected 1 (it fits) or 0, found \"2\"",
        ] {
            assert!(faults.contains(part), "{part}\n{faults}");
        }
    }

    #[test]
    fn what_is_no_file_of_points_is_refused() {
        let message = read("a.csv", b"ids,value\n1,2\n").unwrap_err().to_string();
        assert!(message.contains("columns missing: id, metric, unit (\"ids\" may be meant for \"id\")"), "{message}");
        assert!(read("a.csv", b"").is_err());
        assert!(read("a.csv", b"id,metric,value,unit\n").unwrap_err().to_string().contains("no points"));
        assert!(read("a.csv", b"id,metric,value,unit\n\xff\xfe,time,1,s\n").is_err());
    }
}
