//! Which columns a table of results has in the end, and what the labels of its axes amount to.
//!
//! A run writes every column, as rows come one by one; when it is finished, columns that no row fills are left out, and axes whose labels
//! are amounts with a unit (`4 MB`) get a column of numbers in the base unit (`sram_bytes`). Readers take a column that is left out for an empty one.

use super::csv::{COLUMNS, TRAILING, is_fixed};
use super::table::NEEDED;
use crate::spec::nearest::meant;
use crate::units::{
    Bandwidth, Bytes, EnergyPerByte, EnergyPerFlop, Flop, FlopRate, Frequency, Power, Price, Quantity, Seconds,
};
use csv::{Reader, StringRecord, Writer};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::Path;

/// What is kept beside the point, its labels, `status`, `study` and `key`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Columns {
    /// Those that some row fills.
    #[default]
    Filled,
    /// All there are.
    All,
    /// These.
    Named(Vec<String>),
}

impl Columns {
    /// `filled`, `all`, or names between commas.
    ///
    /// # Errors
    /// Names that are no columns.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "filled" => return Ok(Self::Filled),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let known: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_string()).collect();
        match names.iter().find(|name| !known.contains(&name.as_str())) {
            None => Ok(Self::Named(names)),
            Some(name) => Err(format!(
                "there is no column {name:?}{}; `flowspace schema columns` lists them, `all` and `filled` stand for many",
                meant(name, &known)
            )),
        }
    }

    fn keeps(&self, name: &str, filled: bool) -> bool {
        match self {
            Self::Filled => filled,
            Self::All => true,
            Self::Named(names) => names.iter().any(|named| named == name),
        }
    }
}

/// A kind of amount: the ending of a column that holds it in the base unit, and how it is read.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The ending.
    pub unit: &'static str,
    /// What it is, with article.
    pub name: &'static str,
    /// Its value in the base unit.
    pub read: fn(&str) -> Option<f64>,
}

const fn kind<Q: Quantity>(unit: &'static str) -> Kind {
    Kind { unit, name: Q::NAME, read: |text| Q::parse(text).map(Quantity::base).ok() }
}

/// The kinds, each before those that its ending ends with.
pub const KINDS: [Kind; 10] = [
    kind::<Bandwidth>("bytes_per_s"),
    kind::<FlopRate>("flop_per_s"),
    kind::<EnergyPerByte>("j_per_byte"),
    kind::<EnergyPerFlop>("j_per_flop"),
    kind::<Bytes>("bytes"),
    kind::<Flop>("flop"),
    kind::<Seconds>("s"),
    kind::<Frequency>("hz"),
    kind::<Power>("w"),
    kind::<Price>("usd"),
];

/// The kind of amount that a column holds by its name.
pub fn kind_of(column: &str) -> Option<Kind> {
    let ends = |kind: &&Kind| column.strip_suffix(kind.unit).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'));
    // `samples_per_s` is no time.
    KINDS.iter().find(ends).filter(|kind| kind.unit.contains("_per_") || !column.contains("_per_")).copied()
}

/// The unit of a column by its name: `bytes/s`, `samples/s`; `None` of texts, counts and shares.
pub fn unit_of(column: &str) -> Option<String> {
    let unit = kind_of(column).map(|kind| kind.unit).or_else(|| column.contains("_per_").then_some(column));
    unit.map(|unit| unit.replace("_per_", "/"))
}

/// A column as the title of an axis: what it is, and its unit as it is written: `power (W)`, `samples/s`; without a unit its name.
pub fn titled(column: &str) -> String {
    let symbol = |unit: &str| match unit {
        "bytes_per_s" => "bytes/s".to_string(),
        "flop_per_s" => "FLOP/s".to_string(),
        "j_per_byte" => "J/byte".to_string(),
        "j_per_flop" => "J/FLOP".to_string(),
        "flop" => "FLOP".to_string(),
        "hz" => "Hz".to_string(),
        "w" => "W".to_string(),
        "mw" => "MW".to_string(),
        "j" => "J".to_string(),
        "usd" => "$".to_string(),
        "musd" => "million $".to_string(),
        "pct" => "%".to_string(),
        other => other.replace('_', " "),
    };
    let unit = kind_of(column).map(|kind| kind.unit).or_else(|| column.ends_with("_pct").then_some("pct"));
    match unit {
        Some(unit) => match column.strip_suffix(unit).map(|name| name.trim_end_matches('_').replace('_', " ")) {
            Some(name) if !name.is_empty() => format!("{name} ({})", symbol(unit)),
            _ => symbol(unit),
        },
        None if column.contains("_per_") => column.split("_per_").map(symbol).collect::<Vec<_>>().join("/"),
        None => column.to_string(),
    }
}

/// The one kind that all labels are amounts of.
pub fn kind_of_labels<'t>(labels: impl Iterator<Item = &'t str> + Clone) -> Option<Kind> {
    let first = labels.clone().next()?;
    let fits = |kind: &&Kind| (kind.read)(first).is_some() && labels.clone().all(|label| (kind.read)(label).is_some());
    KINDS.iter().find(fits).copied()
}

/// An axis whose labels may be amounts.
struct Amounts {
    /// Its column.
    position: usize,
    /// The labels seen.
    labels: HashMap<String, f64>,
    /// The kind that all of them are of so far; `None` before the first.
    kind: Option<Kind>,
    /// Whether some label is none.
    spoilt: bool,
}

impl Amounts {
    fn new(position: usize) -> Self {
        Self { position, labels: HashMap::new(), kind: None, spoilt: false }
    }

    fn see(&mut self, label: &str) {
        if self.spoilt || self.labels.contains_key(label) {
            return;
        }
        let kind = self.kind.or_else(|| kind_of_labels(std::iter::once(label)));
        match kind.and_then(|kind| (kind.read)(label)) {
            Some(value) => {
                self.labels.insert(label.to_string(), value);
                self.kind = kind;
            }
            None => self.spoilt = true,
        }
    }
}

/// Which columns of a table are kept, and the numbers its axes get.
#[derive(Debug)]
pub struct Layout {
    /// Kept columns before the numbers of the axes, by their place in the whole table.
    main: Vec<usize>,
    /// Name of each column of numbers, the place of its axis, and the text of the number by label.
    numbers: Vec<(String, usize, HashMap<String, String>)>,
    /// Kept columns behind them.
    last: Vec<usize>,
}

impl Layout {
    /// Of a table with this header, of whose columns these are filled, and whose axes have these labels.
    fn new(header: &[&str], filled: &[bool], axes: Vec<Amounts>, choice: &Columns) -> Self {
        let first = first_fixed(header);
        let trailing = |name: &str| TRAILING.iter().any(|(trailing, _)| *trailing == name);
        // What comes from an earlier settling is made again.
        let keeps = |(at, name): &(usize, &str)| {
            let filled = filled.get(*at) == Some(&true);
            *at < first
                || NEEDED.contains(name)
                || (trailing(name) && (*choice == Columns::All || filled))
                || (COLUMNS.iter().any(|c| c.name == *name) && choice.keeps(name, filled))
        };
        let kept = header.iter().copied().enumerate().filter(keeps);
        let (last, main): (Vec<_>, Vec<_>) = kept.partition(|(_, name)| trailing(name));
        let number = |axis: Amounts| {
            let kind = axis.kind.filter(|_| !axis.spoilt)?;
            let name = format!("{}_{}", header.get(axis.position)?, kind.unit);
            // `dram_bytes_per_s` is what the system has, whatever an axis `dram` stands for.
            let taken = is_fixed(&name) || header.iter().take(first).any(|other| *other == name);
            let texts = axis.labels.into_iter().map(|(label, value)| (label, super::csv::number(value))).collect();
            Some((if taken { format!("axis_{name}") } else { name }, axis.position, texts))
        };
        let places = |kept: Vec<(usize, &str)>| kept.into_iter().map(|(at, _)| at).collect();
        Self { main: places(main), numbers: axes.into_iter().filter_map(number).collect(), last: places(last) }
    }

    /// Of a table with this header, of whose columns these are filled, and whose axes have these labels; the axes stand behind the first column.
    pub fn of<'t>(
        header: &[&str],
        filled: &[bool],
        axes: impl Iterator<Item = Vec<&'t str>>,
        choice: &Columns,
    ) -> Self {
        let amounts = |(at, labels): (usize, Vec<&str>)| {
            let mut amounts = Amounts::new(at + 1);
            labels.iter().for_each(|label| amounts.see(label));
            amounts
        };
        Self::new(header, filled, axes.enumerate().map(amounts).collect(), choice)
    }

    /// Of a table of so many columns that stays as it is.
    pub fn whole(columns: usize) -> Self {
        Self { main: (0..columns).collect(), numbers: Vec::new(), last: Vec::new() }
    }

    /// The header of what is kept.
    pub fn header<'t>(&'t self, header: &[&'t str]) -> Vec<&'t str> {
        let named = |at: &usize| header.get(*at).copied().unwrap_or_default();
        let numbers = self.numbers.iter().map(|(name, _, _)| name.as_str());
        self.main.iter().map(named).chain(numbers).chain(self.last.iter().map(named)).collect()
    }

    /// What is kept of a row; `cell` says what stands at a place of the whole table.
    pub fn row<'t>(&'t self, cell: impl Fn(usize) -> &'t str) -> Vec<&'t str> {
        let number = |(_, axis, texts): &'t (String, usize, HashMap<String, String>)| {
            texts.get(cell(*axis)).map(String::as_str).unwrap_or_default()
        };
        let numbers = self.numbers.iter().map(number);
        let kept = |at: &usize| cell(*at);
        self.main.iter().map(kept).chain(numbers).chain(self.last.iter().map(kept)).collect()
    }
}

/// The place of the first column that every table has; those before it are the point and its labels.
fn first_fixed(header: &[&str]) -> usize {
    header.iter().skip(1).position(|name| is_fixed(name)).map_or(header.len(), |at| at + 1)
}

/// Whether a column of a table of results with this header holds numbers: one that results have, or the numbers of an axis.
pub fn holds_numbers(header: &[&str], name: &str) -> bool {
    if is_fixed(name) {
        return COLUMNS.iter().any(|column| column.name == name && column.is_number());
    }
    let axes = header.get(1..first_fixed(header)).unwrap_or_default();
    let of = |axis: &&str| {
        let rest = name.strip_prefix("axis_").unwrap_or(name).strip_prefix(axis).or_else(|| name.strip_prefix(axis));
        rest.and_then(|rest| rest.strip_prefix('_')).is_some_and(|unit| KINDS.iter().any(|kind| kind.unit == unit))
    };
    !axes.contains(&name) && axes.iter().any(of)
}

/// Leaves of the table at `path` the columns that `choice` keeps, and adds the numbers of its axes. Rows keep their order; what is read is never held whole.
///
/// # Errors
/// When it cannot be read or written, or is no table; the old one stays then.
pub fn settle(path: &Path, choice: &Columns) -> io::Result<()> {
    let open = || -> io::Result<Reader<BufReader<File>>> { Ok(Reader::from_reader(BufReader::new(File::open(path)?))) };
    let mut reader = open()?;
    let header = reader.headers().map_err(io::Error::other)?.clone();
    let header: Vec<&str> = header.iter().collect();
    let mut filled = vec![false; header.len()];
    let mut axes: Vec<Amounts> = (1..first_fixed(&header)).map(Amounts::new).collect();
    let mut row = StringRecord::new();
    while reader.read_record(&mut row).map_err(io::Error::other)? {
        row.iter().zip(&mut filled).for_each(|(text, filled)| *filled |= !text.is_empty());
        axes.iter_mut().for_each(|axis| axis.see(row.get(axis.position).unwrap_or_default()));
    }
    let layout = Layout::new(&header, &filled, axes, choice);
    if layout.header(&header) == header {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = path.with_file_name(format!(".{name}.columns"));
    let written = (|| -> io::Result<()> {
        let mut reader = open()?;
        let mut writer = Writer::from_writer(BufWriter::new(File::create(&temporary)?));
        writer.write_record(layout.header(&header)).map_err(io::Error::other)?;
        let mut row = StringRecord::new();
        while reader.read_record(&mut row).map_err(io::Error::other)? {
            let cells = layout.row(|at| row.get(at).unwrap_or_default());
            writer.write_record(cells).map_err(io::Error::other)?;
        }
        writer
            .into_inner()
            .map_err(|e| e.into_error())?
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    #[test]
    fn empty_columns_go_and_axes_get_numbers() {
        let folder = std::env::temp_dir().join(format!("flowspace-columns-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("results.csv");
        let names: Vec<&str> = COLUMNS.iter().map(|c| c.name).chain(TRAILING.iter().map(|t| t.0)).collect();
        let write = |rows: &[[&str; 4]]| {
            let mut text = format!("point,sram,dram,chip,{}\n", names.join(","));
            for (i, labels) in rows.iter().enumerate() {
                let value = |name: &&str| match *name {
                    "status" => "optimal",
                    "samples_per_s" => labels[3],
                    "study" => "s",
                    "key" => "k",
                    _ => "",
                };
                text.push_str(&format!(
                    "{i},{},{}\n",
                    labels[..3].join(","),
                    names.iter().map(value).collect::<Vec<_>>().join(",")
                ));
            }
            fs::write(&path, text).unwrap();
        };
        let rows = [["4 MB", "1.5 TB/s", "h100", "2"], ["1 GiB", "900 GB/s", "4 MB", ""]];
        write(&rows);
        settle(&path, &Columns::Filled).unwrap();
        let expected = "point,sram,dram,chip,status,samples_per_s,sram_bytes,axis_dram_bytes_per_s,study,key\n\
                        0,4 MB,1.5 TB/s,h100,optimal,2,4000000,1500000000000,s,k\n\
                        1,1 GiB,900 GB/s,4 MB,optimal,,1073741824,900000000000,s,k\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        // Once more changes nothing; what is left out reads as empty, and the axes are the axes.
        settle(&path, &Columns::Filled).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        let table = Table::read(&path).unwrap();
        assert_eq!(table.axes().unwrap(), ["sram", "dram", "chip"]);
        assert_eq!(table.texts("cost_usd").unwrap(), ["", ""]);
        assert!(table.texts("cost_us").unwrap_err().to_string().contains("there is no column"));
        assert_eq!(table.numbers("sram_bytes").unwrap(), [4e6, 1073741824.0]);
        write(&rows);
        settle(&path, &Columns::All).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().next().unwrap().split(',').count(), 4 + names.len() + 2);
        write(&rows);
        settle(&path, &Columns::parse("tp, iteration_s").unwrap()).unwrap();
        assert!(
            fs::read_to_string(&path).unwrap().starts_with("point,sram,dram,chip,status,tp,iteration_s,sram_bytes,")
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn kinds_follow_from_names() {
        for (column, unit) in [
            ("power_w", "w"),
            ("iteration_s", "s"),
            ("dram_bytes_per_s", "bytes_per_s"),
            ("flop_per_s", "flop_per_s"),
            ("total_bytes", "bytes"),
            ("cost_usd", "usd"),
        ] {
            assert_eq!(kind_of(column).map(|k| k.unit), Some(unit), "{column}");
        }
        for column in ["samples_per_s", "samples_per_s_per_mw", "status", "utilization", "tp", "flop_per_s_per_usd"] {
            assert!(kind_of(column).is_none(), "{column}");
        }
        for (column, unit) in
            [("dram_bytes_per_s", Some("bytes/s")), ("samples_per_s_per_mw", Some("samples/s/mw")), ("tp", None)]
        {
            assert_eq!(unit_of(column).as_deref(), unit, "{column}");
        }
        for (column, title) in [
            ("power_w", "power (W)"),
            ("cost_usd", "cost ($)"),
            ("samples_per_s", "samples/s"),
            ("samples_per_s_per_musd", "samples/s/million $"),
            ("j_per_sample", "J/sample"),
            ("dram_bytes_per_s", "dram (bytes/s)"),
            ("flop_per_s", "FLOP/s"),
            ("iteration_s", "iteration (s)"),
            ("error_band_pct", "error band (%)"),
            ("utilization", "utilization"),
            ("tp", "tp"),
        ] {
            assert_eq!(titled(column), title);
        }
        let all = COLUMNS.iter().filter(|c| kind_of(c.name).is_some() && c.name != "partition_times_s");
        assert!(all.clone().count() > 30 && all.clone().all(|c| c.is_number()));
        assert!(Columns::parse("samples_per_z").unwrap_err().contains("samples_per_s"));
    }
}
