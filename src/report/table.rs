//! A CSV file read back: header, rows, and columns as numbers or texts.

use super::csv::{COLUMNS, LEADING, is_fixed};
use crate::spec::FileKind;
use crate::spec::nearest::{near, quoted};
use csv::{ReaderBuilder, StringRecord};
use std::path::{Path, PathBuf};

/// The table in the folder of a study.
pub const RESULTS: &str = "results.csv";
/// Columns named where another one may be meant.
const MOST_NAMED: usize = 5;
/// Columns listed of a table whose columns are not known.
const MOST_LISTED: usize = 12;

/// A table with a header.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The file it came from.
    pub path: PathBuf,
    /// Where the tables came from that this one is put together of.
    parts: Vec<PathBuf>,
    header: Vec<String>,
    rows: Vec<StringRecord>,
}

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read, or is no CSV file.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no such column.
    #[error("{}: there is no column {column:?}; {remedy}", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column asked for.
        column: String,
        /// Columns there are.
        remedy: String,
    },
    /// A column does not hold numbers.
    #[error("{}:{line}: column {column:?} is to be drawn as a number, found {found:?}", path.display())]
    NotANumber {
        /// The file.
        path: PathBuf,
        /// Line of the file.
        line: u64,
        /// The column.
        column: String,
        /// What stands there.
        found: String,
    },
    /// A column holds nothing at all.
    #[error("{}: column {column:?} is empty in every row", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
    },
    /// The table was not written by a study.
    #[error("{}: not the results of a study (no column {missing:?}); name columns with --x and --y to draw it", path.display())]
    NotResults {
        /// The file.
        path: PathBuf,
        /// A column that results have.
        missing: &'static str,
    },
}

/// What is wrong with a line of a table.
fn no_table(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => format!(
            "line {} has {len} fields, the header has {expected_len}",
            pos.as_ref().map_or(0, csv::Position::line)
        ),
        csv::ErrorKind::Utf8 { pos, .. } => {
            format!("line {} is not UTF-8 text", pos.as_ref().map_or(0, csv::Position::line))
        }
        csv::ErrorKind::Io(error) => crate::spec::node::io_reason(error),
        _ => error.to_string(),
    }
}

impl Table {
    /// Reads a CSV file whose first line is the header.
    ///
    /// # Errors
    /// [`TableError::Read`] when it cannot be read, is empty, or its rows differ in length.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        let fail = |reason: String| TableError::Read { path: path.to_path_buf(), reason };
        if path.is_dir() {
            let results = path.join(RESULTS);
            let table = if results.is_file() { format!("; its table is {}", results.display()) } else { String::new() };
            return Err(fail(format!("it is a folder{table}")));
        }
        let bytes = crate::spec::node::read_bounded(path).map_err(|e| fail(crate::spec::node::io_reason(&e)))?;
        let kind = std::str::from_utf8(&bytes).ok().and_then(FileKind::of_text);
        if let Some(kind) = kind.filter(|kind| *kind != FileKind::Table) {
            return Err(fail(kind.instead_of("a table (CSV)")));
        }
        match bytes.as_slice() {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Err(fail("it is UTF-16 text; save it as UTF-8".into())),
            [b'{' | b'[', ..] => return Err(fail("this looks like JSON, not a table (CSV)".into())),
            _ => {}
        }
        // Spreadsheet programs put a byte order mark before the header.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let mut reader = ReaderBuilder::new().from_reader(bytes);
        let header: Vec<String> =
            reader.headers().map_err(|e| fail(no_table(&e)))?.iter().map(str::to_string).collect();
        if header.is_empty() {
            return Err(fail("the file is empty; a header is due".into()));
        }
        if let ([only], Some(other)) = (header.as_slice(), header[0].chars().find(|c| [';', '\t', '|'].contains(c))) {
            return Err(fail(format!(
                "the header {only:?} has no comma: fields stand between commas, found {other:?}"
            )));
        }
        if let Some((at, name)) = header.iter().enumerate().find(|(at, name)| header[..*at].contains(name)) {
            let first = header.iter().position(|other| other == name).unwrap_or_default();
            return Err(fail(format!(
                "column {name:?} stands twice in the header (fields {} and {})",
                first + 1,
                at + 1
            )));
        }
        let rows = reader.into_records().collect::<Result<Vec<_>, _>>().map_err(|e| fail(no_table(&e)))?;
        Ok(Self { path: path.to_path_buf(), parts: Vec::new(), header, rows })
    }

    /// Tables put together: every column that one of them has, empty where a table lacks it, and a last one of this name that says
    /// which table a row is from: the study's name where they differ, else the file's folder or path.
    pub fn together(tables: Vec<Table>, source: &str) -> Self {
        let mut header: Vec<String> = Vec::new();
        // The axes of all stand before the columns that results have.
        let (own, fixed): (Vec<&String>, Vec<&String>) =
            tables.iter().flat_map(|t| &t.header).partition(|name| !is_fixed(name));
        let first = tables.iter().flat_map(|t| t.header.first()).filter(|name| is_fixed(name));
        // Not so the numbers of axes.
        let is_axis = |name: &&String| tables.iter().any(|t| t.axes().is_ok_and(|axes| axes.contains(&name.as_str())));
        let are_results = tables.iter().any(Self::is_results);
        let (axes, numbers): (Vec<&String>, Vec<&String>) =
            own.into_iter().partition(|name| !are_results || is_axis(name));
        for name in first.chain(axes).chain(fixed).chain(numbers) {
            if !header.contains(name) {
                header.push(name.clone());
            }
        }
        type Called<'f> = &'f dyn Fn(&Table) -> Option<String>;
        let study = |t: &Table| t.texts("study").ok().and_then(|s| s.first().map(|s| (*s).to_string()));
        let folder = |t: &Table| {
            let folder = t.path.parent().and_then(Path::file_name);
            folder.map(|name| name.to_string_lossy().into_owned())
        };
        let path = |t: &Table| Some(t.path.display().to_string());
        let names: [Called<'_>; 3] = [&study, &folder, &path];
        let differ = |name: &Called<'_>| {
            let of: Vec<Option<String>> = tables.iter().map(name).collect();
            of.iter()
                .enumerate()
                .all(|(i, name)| name.as_ref().is_some_and(|n| !n.is_empty()) && !of[..i].contains(name))
        };
        let called = names.iter().find(|name| differ(name));
        let mut rows = Vec::new();
        for (i, table) in tables.iter().enumerate() {
            let places: Vec<Option<usize>> = header.iter().map(|name| table.position(name)).collect();
            let own = called.and_then(|name| name(table)).unwrap_or_else(|| format!("table {}", i + 1));
            for row in &table.rows {
                let fields = places.iter().map(|at| at.and_then(|at| row.get(at)).unwrap_or_default());
                let mut record: StringRecord = fields.chain([own.as_str()]).collect();
                record.set_position(row.position().cloned());
                rows.push(record);
            }
        }
        header.push(source.to_string());
        let parts: Vec<PathBuf> = tables.iter().map(|t| t.path.clone()).collect();
        Self { path: parts.first().cloned().unwrap_or_default(), parts, header, rows }
    }

    /// The files it came from.
    pub fn paths(&self) -> Vec<&Path> {
        if self.parts.is_empty() { vec![&self.path] } else { self.parts.iter().map(PathBuf::as_path).collect() }
    }

    /// Whether it has a column of this name.
    pub fn has(&self, column: &str) -> bool {
        self.position(column).is_some()
    }

    /// The same with some of its rows.
    #[must_use]
    pub fn of_rows(mut self, keep: impl Fn(usize) -> bool) -> Self {
        let rows = self.rows.into_iter().enumerate().filter(|(row, _)| keep(*row));
        self.rows = rows.map(|(_, fields)| fields).collect();
        self
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn position(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name == column)
    }

    /// The names of its columns.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// The texts of a column. Of results a known column that is not there is one that no row fills.
    ///
    /// # Errors
    /// [`TableError::NoColumn`], naming the nearest.
    pub fn texts(&self, column: &str) -> Result<Vec<&str>, TableError> {
        // Results leave out columns that no row fills.
        if !self.has(column) && is_fixed(column) && self.is_results() {
            return Ok(vec![""; self.rows.len()]);
        }
        let position = self.position(column).ok_or_else(|| TableError::NoColumn {
            path: self.path.clone(),
            column: column.to_string(),
            remedy: self.instead_of(column),
        })?;
        Ok(self.rows.iter().map(|row| row.get(position).unwrap_or_default()).collect())
    }

    /// Which columns may be meant by one that is not there: by name, else by what they hold.
    fn instead_of(&self, column: &str) -> String {
        let names: Vec<&str> = self.header.iter().map(String::as_str).collect();
        let mut likely = near(column, &names, MOST_NAMED);
        if likely.is_empty() {
            let word = column.to_lowercase();
            // What a column holds is said in the first words: "Price of the system".
            let about = COLUMNS.iter().filter(|c| {
                let mut words = c.doc.split(|ch: char| !ch.is_alphanumeric()).filter(|w| !w.is_empty());
                words.by_ref().take(4).any(|w| w.to_lowercase() == word)
            });
            likely = about.map(|c| c.name).filter(|name| names.contains(name)).take(MOST_NAMED).collect();
        }
        let meant = if likely.is_empty() { String::new() } else { format!("did you mean {}? ", quoted(&likely)) };
        if names.len() <= MOST_LISTED {
            return format!("{meant}columns: {}", names.join(", "));
        }
        match self.axes() {
            Ok(axes) => format!(
                "{meant}the study's axes are {}, `flowspace schema columns` tells of the other columns",
                axes.join(", ")
            ),
            Err(_) => format!("{meant}it has {} columns: {}, ...", names.len(), names[..MOST_LISTED].join(", ")),
        }
    }

    /// The numbers of a column; not-a-number where a row has none.
    ///
    /// # Errors
    /// [`TableError`] when there is no such column, when it holds something else than numbers, or nothing at all.
    pub fn numbers(&self, column: &str) -> Result<Vec<f64>, TableError> {
        let texts = self.texts(column)?;
        if !self.rows.is_empty() && texts.iter().all(|text| text.trim().is_empty()) {
            return Err(TableError::Empty { path: self.path.clone(), column: column.to_string() });
        }
        let parse = |(row, text): (&StringRecord, &&str)| match text.trim() {
            "" => Ok(f64::NAN),
            text => text.parse::<f64>().map_err(|_| TableError::NotANumber {
                path: self.path.clone(),
                line: row.position().map_or(0, csv::Position::line),
                column: column.to_string(),
                found: text.to_string(),
            }),
        };
        self.rows.iter().zip(&texts).map(parse).collect()
    }

    /// The axes of a study's results: the columns between the first and those that every table of results may have.
    ///
    /// # Errors
    /// [`TableError::NotResults`] when a column of the results is missing.
    pub fn axes(&self) -> Result<Vec<&str>, TableError> {
        if let Some(missing) = NEEDED.into_iter().find(|name| self.position(name).is_none()) {
            return Err(TableError::NotResults { path: self.path.clone(), missing });
        }
        Ok(self.header.iter().map(String::as_str).skip(1).take_while(|name| !is_fixed(name)).collect())
    }

    fn is_results(&self) -> bool {
        NEEDED.into_iter().all(|name| self.has(name))
    }
}

/// Columns that every row of results fills.
pub(super) const NEEDED: [&str; 4] = [LEADING.0, "status", "study", "key"];

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, text: &str) -> Result<Table, TableError> {
        let path = std::env::temp_dir().join(format!("flowspace-table-{}-{name}.csv", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let read = Table::read(&path);
        std::fs::remove_file(&path).unwrap();
        read
    }

    #[test]
    fn columns_are_numbers_or_texts() {
        let table = table("columns", "\u{feff}chip,time_s,note\nA,1.5,\nB,,\nC,2e-3,\n").unwrap();
        assert_eq!(table.texts("chip").unwrap(), ["A", "B", "C"]);
        let numbers = table.numbers("time_s").unwrap();
        assert_eq!((numbers[0], numbers[1].is_nan(), numbers[2]), (1.5, true, 0.002));
        assert!(table.numbers("chip").unwrap_err().to_string().contains(":2: column \"chip\""));
        assert!(matches!(table.numbers("note"), Err(TableError::Empty { .. })));
        let unknown = table.texts("tiem_s").unwrap_err().to_string();
        assert!(unknown.contains("did you mean \"time_s\"? columns: chip, time_s, note"), "{unknown}");
        assert!(matches!(table.axes(), Err(TableError::NotResults { .. })));
    }

    /// Results may leave out columns that no row fills; other tables may not.
    #[test]
    fn columns_left_out_of_results_are_empty() {
        let results = table("left-out", "point,chip,status,study,key\n0,a,optimal,s,k\n").unwrap();
        assert_eq!(results.axes().unwrap(), ["chip"]);
        assert_eq!(results.texts("reason").unwrap(), [""]);
        assert!(matches!(results.numbers("gap"), Err(TableError::Empty { .. })));
        assert!(matches!(results.texts("other"), Err(TableError::NoColumn { .. })));
        let other = table("other", "chip,status\na,optimal\n").unwrap();
        assert!(matches!(other.texts("reason"), Err(TableError::NoColumn { .. })));
    }

    #[test]
    fn tables_are_put_together_by_name() {
        let one = table("one", "point,chip,status,study,key\n0,a,optimal,s,k\n").unwrap();
        let two = table("two", "point,link,status,gap,study,key\n0,x,optimal,0.1,t,k\n1,y,failed,,t,l\n").unwrap();
        let both = Table::together(vec![one, two], "source");
        assert_eq!(both.axes().unwrap(), ["chip", "link"]);
        assert_eq!(both.texts("chip").unwrap(), ["a", "", ""]);
        assert_eq!(both.texts("link").unwrap(), ["", "x", "y"]);
        assert_eq!(both.texts("source").unwrap(), ["s", "t", "t"]);
        assert_eq!(both.paths().len(), 2);
    }

    #[test]
    fn what_is_no_table_is_an_error() {
        assert!(table("empty", "").is_err());
        let twice = table("twice", "a,b,a\n1,2,3\n").unwrap_err().to_string();
        assert!(twice.contains("column \"a\" stands twice in the header (fields 1 and 3)"), "{twice}");
        assert!(table("ragged", "a,b\n1\n").is_err());
        assert!(table("bytes", "a\n\u{0}").is_ok());
        assert!(Table::read(Path::new("/nonexistent/x.csv")).is_err());
    }
}
