//! Tables of results as Parquet, beside the CSV that they are made from: columns of numbers as doubles in the base unit that their name ends
//! in, the point as a 64-bit integer, all others as UTF-8 texts, null where a cell is empty. Rows are read one by one and written in groups
//! of [`GROUP`], so that memory does not grow with their number.
//!
//! The format: <https://parquet.apache.org/docs/file-format/>.

use std::path::{Path, PathBuf};

/// Ending of such a file.
pub const ENDING: &str = "parquet";

/// Rows of a group: what is held at once, and the least that a reader can skip.
pub const GROUP: usize = 1 << 16;

/// The table in Parquet that stands beside one in CSV.
pub fn beside(table: &Path) -> PathBuf {
    table.with_extension(ENDING)
}

#[cfg(not(feature = "parquet"))]
mod absent {
    use std::io;
    use std::path::{Path, PathBuf};

    const ABSENT: &str = "this program was built without Parquet: build it with `cargo build --release --features parquet`, or leave --parquet out (results.csv has the same rows)";

    /// Whether this program writes Parquet.
    ///
    /// # Errors
    /// How to build one that does.
    pub fn available() -> Result<(), &'static str> {
        Err(ABSENT)
    }

    /// Writes nothing.
    ///
    /// # Errors
    /// How to build a program that writes it.
    pub fn write(_: &Path) -> io::Result<PathBuf> {
        Err(io::Error::new(io::ErrorKind::Unsupported, ABSENT))
    }
}
#[cfg(not(feature = "parquet"))]
pub use absent::{available, write};

#[cfg(feature = "parquet")]
mod present {
    use super::{GROUP, beside};
    use crate::report::columns::holds_numbers;
    use crate::report::csv::LEADING;
    use csv::{Reader, StringRecord};
    use parquet::basic::{Compression, LogicalType, Repetition, Type as Stored};
    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::ByteArray;
    use parquet::errors::ParquetError;
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    use std::fs::{self, File};
    use std::io::{self, BufReader};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    /// Whether this program writes Parquet: it does.
    ///
    /// # Errors
    /// None.
    pub fn available() -> Result<(), &'static str> {
        Ok(())
    }

    /// The cells of a column that are not written yet.
    enum Cells {
        Whole(Vec<i64>),
        Number(Vec<f64>),
        Text(Vec<ByteArray>),
    }

    /// A column being written.
    struct Column {
        name: String,
        cells: Cells,
        /// For each row of the group 1, or 0 where its cell is empty.
        filled: Vec<i16>,
    }

    impl Column {
        fn new(header: &[&str], at: usize, name: &str) -> Self {
            let cells = match (at, name) {
                (0, name) if name == LEADING.0 => Cells::Whole(Vec::new()),
                _ if holds_numbers(header, name) => Cells::Number(Vec::new()),
                _ => Cells::Text(Vec::new()),
            };
            Self { name: name.to_string(), cells, filled: Vec::new() }
        }

        fn schema(&self) -> Result<Arc<Type>, ParquetError> {
            let (stored, logical) = match self.cells {
                Cells::Whole(_) => (Stored::INT64, None),
                Cells::Number(_) => (Stored::DOUBLE, None),
                Cells::Text(_) => (Stored::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let column = Type::primitive_type_builder(&self.name, stored).with_logical_type(logical);
            Ok(Arc::new(column.with_repetition(Repetition::OPTIONAL).build()?))
        }

        /// Adds a cell.
        fn push(&mut self, text: &str) -> Result<(), &'static str> {
            self.filled.push(i16::from(!text.is_empty()));
            if text.is_empty() {
                return Ok(());
            }
            match &mut self.cells {
                Cells::Whole(cells) => cells.push(text.parse().map_err(|_| "a whole number")?),
                Cells::Number(cells) => cells.push(text.parse().map_err(|_| "a number")?),
                // Neighbours are often alike, and share their bytes then.
                Cells::Text(cells) => match cells.last().filter(|last| last.data() == text.as_bytes()).cloned() {
                    Some(last) => cells.push(last),
                    None => cells.push(text.into()),
                },
            }
            Ok(())
        }

        /// Hands the cells on.
        fn write(&mut self, to: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
            match (&mut self.cells, to) {
                (Cells::Whole(cells), ColumnWriter::Int64ColumnWriter(to)) => {
                    to.write_batch(cells, Some(&self.filled), None)?;
                    cells.clear();
                }
                (Cells::Number(cells), ColumnWriter::DoubleColumnWriter(to)) => {
                    to.write_batch(cells, Some(&self.filled), None)?;
                    cells.clear();
                }
                (Cells::Text(cells), ColumnWriter::ByteArrayColumnWriter(to)) => {
                    to.write_batch(cells, Some(&self.filled), None)?;
                    cells.clear();
                }
                _ => return Err(ParquetError::General(format!("column {:?} has another type", self.name))),
            }
            self.filled.clear();
            Ok(())
        }
    }

    /// Writes a table of results as Parquet beside it, whole or not at all; returns the file.
    ///
    /// # Errors
    /// When the table cannot be read, a cell of a column of numbers is none, or the file cannot be written; an earlier one stays then.
    pub fn write(table: &Path) -> io::Result<PathBuf> {
        write_in(table, GROUP)
    }

    fn write_in(table: &Path, group: usize) -> io::Result<PathBuf> {
        let path = beside(table);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let temporary = path.with_file_name(format!(".{name}.new"));
        let written = fill(table, &temporary, group).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| path)
    }

    fn fill(table: &Path, to: &Path, group: usize) -> io::Result<()> {
        let mut reader = Reader::from_reader(BufReader::new(File::open(table)?));
        let header = reader.headers().map_err(io::Error::other)?.clone();
        let header: Vec<&str> = header.iter().collect();
        let mut columns: Vec<Column> =
            header.iter().enumerate().map(|(at, name)| Column::new(&header, at, name)).collect();
        let fields = columns.iter().map(Column::schema).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        let schema = Type::group_type_builder("results").with_fields(fields).build().map_err(io::Error::other)?;
        // Smallest and largest values of a group; of pages they bring little for tables of this size.
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let mut file = SerializedFileWriter::new(File::create(to)?, Arc::new(schema), Arc::new(properties))
            .map_err(io::Error::other)?;
        let (mut row, mut held) = (StringRecord::new(), 0);
        while reader.read_record(&mut row).map_err(io::Error::other)? {
            for (column, text) in columns.iter_mut().zip(row.iter()) {
                column.push(text).map_err(|due| {
                    let line = row.position().map_or(0, csv::Position::line);
                    let text = format!("line {line}: column {:?}: expected {due}, found {text:?}", column.name);
                    io::Error::new(io::ErrorKind::InvalidData, text)
                })?;
            }
            held += 1;
            if held == group {
                flush(&mut file, &mut columns).map_err(io::Error::other)?;
                held = 0;
            }
        }
        if held > 0 {
            flush(&mut file, &mut columns).map_err(io::Error::other)?;
        }
        file.finish().map_err(io::Error::other)?;
        file.inner().sync_all()
    }

    /// Writes a group of rows.
    fn flush(file: &mut SerializedFileWriter<File>, columns: &mut [Column]) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        for column in columns {
            let Some(mut to) = group.next_column()? else { break };
            column.write(to.untyped())?;
            to.close()?;
        }
        group.close().map(|_| ())
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::report::csv::{COLUMNS, TRAILING};
        use parquet::file::reader::{FileReader, SerializedFileReader};
        use parquet::record::{Field, RowAccessor};

        /// Every cell of a table as Parquet holds it, in words.
        fn read(path: &Path) -> (Vec<String>, Vec<Vec<String>>, usize) {
            let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
            let names = reader.metadata().file_metadata().schema_descr().columns().to_vec();
            let names = names.iter().map(|column| column.name().to_string()).collect();
            let cell = |field: &Field| match field {
                Field::Null => String::new(),
                Field::Str(text) => text.clone(),
                Field::Long(n) => n.to_string(),
                Field::Double(x) => format!("{x:?}"),
                other => panic!("{other:?}"),
            };
            let rows = reader.get_row_iter(None).unwrap().map(|row| {
                let row = row.unwrap();
                assert!(row.get_long(0).is_ok());
                row.get_column_iter().map(|(_, field)| cell(field)).collect()
            });
            (names, rows.collect(), reader.num_row_groups())
        }

        #[test]
        fn every_cell_is_that_of_the_csv() {
            let folder = std::env::temp_dir().join(format!("flowspace-parquet-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let table = folder.join("results.csv");
            let fixed: Vec<&str> = COLUMNS.iter().map(|c| c.name).chain(TRAILING.iter().map(|t| t.0)).collect();
            let header: Vec<&str> =
                ["point", "sram", "label"].into_iter().chain(fixed).chain(["sram_bytes", "label_s"]).collect();
            // Texts with commas, quotation marks, lines, other scripts, and what reads as a number; numbers at the ends of what a double holds.
            let texts = ["a,b", "say \"x\"", "two\nlines", "größe 尺寸 \u{1f4a1}", "1e5", "NaN", " ", "'"];
            let numbers = ["0", "-0.1", "5e-324", "1.7976931348623157e308", "0.1", "123456789012345680", "inf"];
            let (group, rows) = (200, 323);
            let mut writer = csv::Writer::from_path(&table).unwrap();
            writer.write_record(&header).unwrap();
            for i in 0..rows {
                let cell = |(at, name): (usize, &&str)| match at {
                    0 => i.to_string(),
                    _ if (i * 7 + at) % 5 == 0 => String::new(),
                    _ if holds_numbers(&header, name) => numbers[(i + at) % numbers.len()].to_string(),
                    _ => texts[(i + at) % texts.len()].to_string(),
                };
                writer.write_record(header.iter().enumerate().map(cell)).unwrap();
            }
            drop(writer);
            let path = write_in(&table, group).unwrap();
            assert_eq!(path, folder.join("results.parquet"));
            let (names, found, groups) = read(&path);
            assert_eq!((names.iter().map(String::as_str).collect::<Vec<_>>(), groups), (header.clone(), 2));
            let mut reader = Reader::from_path(&table).unwrap();
            let same = |text: &str, of: &str| match (text.parse::<f64>(), of.parse::<f64>()) {
                (Ok(a), Ok(b)) => a.to_bits() == b.to_bits() || text == of,
                _ => text == of,
            };
            let mut count = 0;
            for (row, found) in reader.records().zip(&found) {
                let row = row.unwrap();
                assert!(row.iter().zip(found).all(|(a, b)| same(b, a)), "{row:?}\n{found:?}");
                count += 1;
            }
            assert_eq!((count, found.len()), (rows, rows));
            // Types by name, whatever the rows hold.
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let kind = |name: &str| {
                let schema = reader.metadata().file_metadata().schema_descr();
                schema.columns().iter().find(|c| c.name() == name).map(|c| c.physical_type()).unwrap()
            };
            for (name, stored) in [
                ("point", Stored::INT64),
                ("sram", Stored::BYTE_ARRAY),
                ("sram_bytes", Stored::DOUBLE),
                ("label_s", Stored::DOUBLE),
                ("status", Stored::BYTE_ARRAY),
                ("iteration_s", Stored::DOUBLE),
                ("tp", Stored::DOUBLE),
                ("key", Stored::BYTE_ARRAY),
            ] {
                assert_eq!(kind(name), stored, "{name}");
            }
            // A cell that is no number is an error with its place, and the file of before stays.
            let before = fs::read(&path).unwrap();
            fs::write(&table, "point,status,iteration_s\n0,optimal,1\n1,optimal,soon\n").unwrap();
            let error = write(&table).unwrap_err().to_string();
            assert_eq!(error, "line 3: column \"iteration_s\": expected a number, found \"soon\"");
            assert_eq!((fs::read(&path).unwrap(), fs::read_dir(&folder).unwrap().count()), (before, 2));
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}
#[cfg(feature = "parquet")]
pub use present::{available, write};
