//! Going over a Chakra trace node by node, whatever its form: what only passes nodes on never holds the trace.

use super::{Metadata, Node, Reader, Trace, json, text};
use crate::trace::detect::{self, Format};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::input;
use std::io;
use std::path::Path;

/// A piece of a trace, as a reader hands it on.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one is handed on at a time, and taken apart at once
pub enum Part {
    /// What stands before the nodes; not every form has it.
    Metadata(Metadata),
    /// A node.
    Node(Node),
}

/// Why a pass ended early.
#[derive(Debug)]
pub enum Fault {
    /// The trace cannot be read.
    Input(TraceErrors),
    /// What was made of it cannot be written.
    Output(io::Error),
}

impl From<TraceErrors> for Fault {
    fn from(errors: TraceErrors) -> Self {
        Self::Input(errors)
    }
}

impl From<TraceError> for Fault {
    fn from(error: TraceError) -> Self {
        Self::Input(error.into())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// What looks at a trace in passing.
pub trait Visitor {
    /// The metadata, once, before the nodes; empty where the file has none.
    ///
    /// # Errors
    /// Those of what it writes to.
    fn metadata(&mut self, _: &Metadata) -> io::Result<()> {
        Ok(())
    }
    /// A node.
    ///
    /// # Errors
    /// Those of what it writes to.
    fn node(&mut self, node: &Node) -> io::Result<()>;
}

/// Looks at the nodes alone.
#[derive(Debug)]
pub struct Nodes<F>(pub F);

impl<F: FnMut(&Node) -> io::Result<()>> Visitor for Nodes<F> {
    fn node(&mut self, node: &Node) -> io::Result<()> {
        self.0(node)
    }
}

/// A trace that can be gone over, as often as need be.
pub trait Pass {
    /// Shows everything to a visitor.
    ///
    /// # Errors
    /// [`Fault`]: what cannot be read, or what the visitor could not write. After faults of the input (up to twenty come at once) the
    /// visitor sees no more nodes.
    fn pass(&self, visitor: &mut dyn Visitor) -> Result<(), Fault>;
}

impl Pass for Trace {
    fn pass(&self, visitor: &mut dyn Visitor) -> Result<(), Fault> {
        visitor.metadata(&self.metadata)?;
        self.nodes.iter().try_for_each(|n| visitor.node(n)).map_err(Fault::Output)
    }
}

/// A trace in a file, read anew in each pass.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'p> {
    path: &'p Path,
    format: Format,
}

impl<'p> Stored<'p> {
    /// Of a Chakra trace in any of its forms.
    ///
    /// # Errors
    /// [`TraceError`] for a file that cannot be read, and for other formats by their names.
    pub fn open(path: &'p Path) -> Result<Self, TraceError> {
        let format = detect::detect(path)?;
        Self::of(path, format).ok_or_else(|| {
            let message = format!(
                "expected a Chakra trace, found a file of format \"{}\" (`flowspace trace convert` makes one)",
                format.name()
            );
            TraceError::new(path, message)
        })
    }

    /// The same where the format is known; none where it is no form of Chakra's.
    pub fn of(path: &'p Path, format: Format) -> Option<Self> {
        let forms = [Format::Chakra, Format::ChakraJson, Format::FeederJson, Format::ChakraText];
        forms.contains(&format).then_some(Self { path, format })
    }
}

impl Pass for Stored<'_> {
    fn pass(&self, visitor: &mut dyn Visitor) -> Result<(), Fault> {
        let source = input::open(self.path)?;
        if self.format == Format::Chakra {
            return binary(Reader::new(source, self.path)?, visitor);
        }
        let mut begun = false;
        let mut take = |part: Part| {
            match &part {
                Part::Node(_) if !begun => visitor.metadata(&Metadata::default())?,
                _ => {}
            }
            begun = true;
            match part {
                Part::Metadata(metadata) => visitor.metadata(&metadata),
                Part::Node(node) => visitor.node(&node),
            }
        };
        match self.format {
            Format::ChakraText => text::parts(source, self.path, &mut take)?,
            _ => json::parts(source, self.path, &mut take)?,
        }
        if begun { Ok(()) } else { Ok(visitor.metadata(&Metadata::default())?) }
    }
}

fn binary<R: io::Read>(mut reader: Reader<R>, visitor: &mut dyn Visitor) -> Result<(), Fault> {
    visitor.metadata(reader.metadata())?;
    let mut errors = Vec::new();
    for node in reader.by_ref() {
        match node {
            Ok(node) if errors.is_empty() => visitor.node(&node)?,
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
        if errors.len() >= MOST_ERRORS {
            break;
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(TraceErrors(errors).into()) }
}

/// Holds what a reader hands on.
///
/// # Errors
/// [`TraceErrors`] of the input; holding is no output that could fail.
pub(super) fn collect(
    read: impl FnOnce(&mut dyn FnMut(Part) -> io::Result<()>) -> Result<(), Fault>,
    path: &Path,
) -> Result<Trace, TraceErrors> {
    let mut trace = Trace::default();
    let mut take = |part: Part| {
        match part {
            Part::Metadata(metadata) => trace.metadata = metadata,
            Part::Node(node) => trace.nodes.push(node),
        }
        Ok(())
    };
    match read(&mut take) {
        Ok(()) => Ok(trace),
        Err(Fault::Input(errors)) => Err(errors),
        Err(Fault::Output(e)) => Err(TraceError::io(path, &e).into()),
    }
}
