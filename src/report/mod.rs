//! What a study leaves behind: tables and figures, one file a format.
//!
//! [`chakra`] writes a plan as traces for simulators. [`csv`] defines the columns of `results.csv` once, [`columns`] which of them a table keeps, [`parquet`] writes it in typed columns too; [`table`] reads such a file back; [`figures`] draws from what was
//! read, and from nothing else, so that a figure can always be redrawn from the CSV file beside it. So do [`html`], one page with all of it, and [`paper`],
//! tables for papers; [`manifest`] says what the rows were made from. [`query`] chooses rows, [`difference`] compares two
//! tables.

pub mod chakra;
pub mod columns;
pub mod csv;
pub mod difference;
pub mod executed;
pub mod figures;
pub mod html;
pub mod manifest;
pub mod paper;
pub mod parquet;
pub mod placed;
pub mod plot;
pub mod query;
pub mod statement;
pub mod table;
