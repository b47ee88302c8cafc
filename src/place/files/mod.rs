//! Mapping and profile files of actor runtimes: one XML shape with two spellings, and an older one that is read alone.
//!
//! - the **runtime form**: `configuration`, its `partitioning` of `partition`s with `instance`s, `connections` of `fifo-connection`s. A profile
//!   has the same shape with `complexity` (ticks measured) and `bandwidth` (tokens that passed);
//! - **`.xcf`**, the form of the compiler: a `network`, processing elements and code generators beside;
//! - the **older form** with capital letters (`Configuration`, `Partition`, ...), `src` for `source`, read alone.
//!
//! Files are parsed by `roxmltree`: it keeps positions, forbids unsafe code, does not recurse, knows only `memchr`
//! (which is here anyway), and refuses document types, so that no entity expands. What is written is canonical (one order of attributes, one
//! indentation), and a canonical file that is read and written again is the same to the byte.

pub mod convert;
mod read;
mod write;

pub use read::read;
pub use write::write;

use std::fmt;

crate::choice! {
    /// Which spelling.
    pub enum Form ("a form of mapping file") {
        /// The runtime's partition XML, also that of profiles.
        Xml = "xml",
        /// The compiler's `.xcf`.
        Xcf = "xcf",
        /// The older one with capital letters; read, not written.
        Capital = "capital",
    }
}

/// An actor in a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Name of the actor.
    pub id: String,
    /// Ticks that a run spent in it.
    pub complexity: Option<u64>,
}

/// What runs on one core.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Number of the core.
    pub id: u64,
    /// Kind of processing element (`x86_64`, `FPGA`).
    pub pe: Option<String>,
    /// `ROUND_ROBIN` or `FULL_PARALLEL`.
    pub scheduling: Option<String>,
    /// Id of the code generator.
    pub generator: Option<String>,
    /// Whether it is the host.
    pub host: Option<bool>,
    /// Actors, in the order of the turns.
    pub instances: Vec<Instance>,
}

/// A code generator of `.xcf`.
#[derive(Debug, Clone, PartialEq)]
pub struct Generator {
    /// Id.
    pub id: String,
    /// Platform (`multicore`, `vivado-hls`).
    pub platform: String,
    /// Parameters: key and value.
    pub parameters: Vec<(String, String)>,
}

/// An entry of `media` in `.xcf`: all that it says, kept as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Medium {
    /// `interface` or `memory`.
    pub kind: String,
    /// Attributes in their order.
    pub attributes: Vec<(String, String)>,
    /// Parameters: key and value.
    pub parameters: Vec<(String, String)>,
}

/// A FIFO.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// Actor that writes, and its port.
    pub source: (String, String),
    /// Actor that reads, and its port.
    pub target: (String, String),
    /// Tokens it holds.
    pub size: Option<u64>,
    /// Bytes of a token.
    pub token_size: Option<u64>,
    /// Tokens that passed in the run that was measured.
    pub bandwidth: Option<u64>,
    /// Medium of `.xcf`.
    pub medium: Option<String>,
}

/// A mapping or profile file.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Its spelling.
    pub form: Form,
    /// Name of the network.
    pub network: Option<String>,
    /// Cores with actors.
    pub partitions: Vec<Partition>,
    /// Code generators.
    pub generators: Vec<Generator>,
    /// Media.
    pub media: Vec<Medium>,
    /// FIFOs.
    pub connections: Vec<Connection>,
}

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line and column from 1; `None` for the file as a whole.
    pub at: Option<(u32, u32)>,
    /// The element or attribute, from the top (`configuration/partitioning/partition@id`).
    pub field: String,
    /// What was found and what would fit.
    pub message: String,
}

/// Everything wrong with a file, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// The file as the user named it.
    pub file: String,
    /// What is wrong with it.
    pub list: Vec<Fault>,
}

impl std::error::Error for Faults {}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.list.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if let Some((line, column)) = fault.at {
                write!(f, ":{line}:{column}")?;
            }
            if !fault.field.is_empty() {
                write!(f, ": {}", fault.field)?;
            }
            write!(f, ": {}", fault.message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
