//! `flowspace schema`.

use super::{Failure, pages};
use clap::{Args, ValueEnum};

/// Arguments of `flowspace schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The kind of file.
    #[arg(value_enum)]
    pub kind: Kind,
    /// json: a JSON Schema. markdown: a page with every field, its default, meaning and an example.
    #[arg(long, value_enum, default_value_t = Notation::Json)]
    pub format: Notation,
}

/// How a kind of file is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Notation {
    /// JSON Schema (of tables: their columns).
    Json,
    /// A page of documentation.
    Markdown,
}

/// Kinds of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A workload.
    Workload,
    /// A system.
    System,
    /// A chip.
    Chip,
    /// A memory.
    Memory,
    /// A link.
    Link,
    /// A switch.
    Switch,
    /// A process technology.
    Technology,
    /// A software stack.
    Stack,
    /// A study.
    Study,
    /// A plan.
    Plan,
    /// An execution of a language model.
    Execution,
    /// How a batch of a language model is served.
    Serving,
    /// A file of measured points (no schema: a table of its columns).
    Points,
    /// The cores of a chip.
    Cores,
    /// An actor graph.
    Actors,
    /// A placement of an actor graph.
    Placement,
    /// The columns of a study's results.csv (no schema: a table of names and meanings).
    Columns,
}

impl Kind {
    /// Its word on the command line.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

/// Prints the schema.
///
/// # Errors
/// [`Failure`] when the document cannot be written as text.
pub fn run(args: &SchemaArgs) -> Result<i32, Failure> {
    if args.format == Notation::Markdown {
        super::print(&pages::page(args.kind)?);
        return Ok(0);
    }
    let Some(file) = pages::of(args.kind) else {
        super::print(&match args.kind {
            Kind::Columns => crate::report::csv::reference(),
            table => pages::page(table)?,
        });
        return Ok(0);
    };
    let schema = (file.schema)(&format!("flowspace {}", args.kind.word()));
    let text = serde_json::to_string_pretty(&schema).map_err(|e| Failure::input(e.to_string()))?;
    super::print(&format!("{text}\n"));
    Ok(0)
}
