//! What went wrong with a trace, and where.

use crate::spec::node::io_reason;
use std::fmt;
use std::path::{Path, PathBuf};

/// One fault of a trace file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// The file.
    pub file: PathBuf,
    /// Byte of the (uncompressed) file where the faulty piece begins.
    pub byte: Option<u64>,
    /// Id of the node or index of the event.
    pub node: Option<String>,
    /// Field of the node.
    pub field: Option<String>,
    /// What was found and what would fit.
    pub message: String,
}

impl TraceError {
    /// A fault of a file as a whole.
    pub fn new(file: &Path, message: impl Into<String>) -> Self {
        Self { file: file.to_path_buf(), byte: None, node: None, field: None, message: message.into() }
    }

    /// A file that cannot be read or written.
    pub fn io(file: &Path, error: &std::io::Error) -> Self {
        Self::new(file, io_reason(error))
    }

    /// With the byte where the faulty piece begins.
    #[must_use]
    pub fn at(mut self, byte: u64) -> Self {
        self.byte = Some(byte);
        self
    }

    /// With the node.
    #[must_use]
    pub fn node(mut self, node: impl fmt::Display) -> Self {
        self.node = Some(node.to_string());
        self
    }

    /// With the field.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(byte) = self.byte {
            write!(f, "byte {byte}: ")?;
        }
        if let Some(node) = &self.node {
            write!(f, "node {node}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for TraceError {}

/// All faults found in one go; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceErrors(pub Vec<TraceError>);

/// Faults kept for one file: more would only repeat themselves.
pub const MOST_ERRORS: usize = 20;

impl fmt::Display for TraceErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TraceErrors {}

impl From<TraceError> for TraceErrors {
    fn from(error: TraceError) -> Self {
        Self(vec![error])
    }
}
