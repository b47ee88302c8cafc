//! `flowspace trace to-json`, `to-text`, `to-et`, `to-dot`, `to-graphml`, `timeline`.

use crate::cli::{Failure, output};
use crate::spec::node::io_reason;
use crate::trace::chakra::json::{Form, JsonWriter};
use crate::trace::chakra::pass::{Fault, Pass, Stored, Visitor};
use crate::trace::chakra::text::TextWriter;
use crate::trace::output::{Out, fill};
use crate::trace::{TraceError, chakra, detect, graphs, timeline as timelines};
use clap::{Args, ValueEnum};
use std::io;
use std::path::{Path, PathBuf};

/// A file in, a file out.
#[derive(Debug, Args)]
pub struct OneToOneArgs {
    /// The trace.
    pub input: PathBuf,
    /// The file to write; standard output if left out (not for .et).
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `flowspace trace to-json`.
#[derive(Debug, Args)]
pub struct ToJsonArgs {
    /// The trace.
    pub input: PathBuf,
    /// The file to write; standard output if left out.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How objects follow each other.
    #[arg(long, value_enum, default_value_t = JsonForm::Array)]
    pub form: JsonForm,
}

/// Forms of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JsonForm {
    /// One list: the metadata, then the nodes.
    Array,
    /// One object a line.
    Lines,
    /// Indented objects without separator, as chakra_jsonizer prints them.
    Jsonizer,
}

/// Opens the output, lets `write` fill it, and says what went wrong in whose terms.
fn write(path: Option<&Path>, input: &Path, write: impl FnOnce(&mut Out) -> Result<(), Fault>) -> Result<(), Failure> {
    output::check(path.map(Path::to_path_buf).as_ref(), [input.to_path_buf()])?;
    match (fill(path, write), path) {
        (Ok(()), _) => Ok(()),
        // The reader went away: nothing is wrong.
        (Err(Fault::Output(e)), None) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        (Err(Fault::Output(e)), Some(path)) => Err(output::failed(path, &e)),
        (Err(Fault::Output(e)), None) => {
            Err(Failure::input(format!("cannot write to standard output: {}", io_reason(&e))))
        }
        (Err(Fault::Input(errors)), _) => Err(errors.into()),
    }
}

/// Forms that a trace is written in piece by piece.
#[derive(Clone, Copy)]
enum To {
    Json(Form),
    Text,
    Et,
}

enum Writer<'o> {
    Json(JsonWriter<&'o mut Out>),
    Text(TextWriter<&'o mut Out>),
    Et(chakra::Writer<&'o mut Out>),
}

/// Passes what a trace holds on to a writer, which begins with the metadata.
struct Writing<'o> {
    to: To,
    out: Option<&'o mut Out>,
    writer: Option<Writer<'o>>,
}

impl Visitor for Writing<'_> {
    fn metadata(&mut self, metadata: &chakra::Metadata) -> io::Result<()> {
        if let Some(out) = self.out.take() {
            self.writer = Some(match self.to {
                To::Json(form) => Writer::Json(JsonWriter::new(out, form, metadata)?),
                To::Text => Writer::Text(TextWriter::new(out, metadata)?),
                To::Et => Writer::Et(chakra::Writer::new(out, metadata)?),
            });
        }
        Ok(())
    }
    fn node(&mut self, node: &chakra::Node) -> io::Result<()> {
        match &mut self.writer {
            Some(Writer::Json(writer)) => writer.node(node),
            Some(Writer::Text(writer)) => writer.node(node),
            Some(Writer::Et(writer)) => writer.node(node),
            None => Ok(()),
        }
    }
}

/// Writes a trace in another form; it is never held whole.
fn turn(input: &Path, path: Option<&Path>, to: To) -> Result<i32, Failure> {
    let trace = Stored::open(input)?;
    write(path, input, |out| {
        let mut writing = Writing { to, out: Some(out), writer: None };
        trace.pass(&mut writing)?;
        if let Some(Writer::Json(writer)) = writing.writer {
            writer.finish()?;
        }
        Ok(())
    })?;
    Ok(0)
}

/// Writes JSON.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_json(args: &ToJsonArgs) -> Result<i32, Failure> {
    let form = match args.form {
        JsonForm::Array => Form::Array,
        JsonForm::Lines => Form::Lines,
        JsonForm::Jsonizer => Form::Jsonizer,
    };
    turn(&args.input, args.out.as_deref(), To::Json(form))
}

/// Writes text protobuf.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_text(args: &OneToOneArgs) -> Result<i32, Failure> {
    turn(&args.input, args.out.as_deref(), To::Text)
}

/// Writes `.et`.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_et(args: &OneToOneArgs) -> Result<i32, Failure> {
    let Some(path) = &args.out else {
        return Err(Failure::input("--out is needed: a .et is not for the terminal"));
    };
    turn(&args.input, Some(path), To::Et)
}

/// Writes Graphviz.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_dot(args: &OneToOneArgs) -> Result<i32, Failure> {
    let trace = Stored::open(&args.input)?;
    write(args.out.as_deref(), &args.input, |out| graphs::dot(&trace, out))?;
    Ok(0)
}

/// Writes GraphML.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_graphml(args: &OneToOneArgs) -> Result<i32, Failure> {
    let trace = Stored::open(&args.input)?;
    write(args.out.as_deref(), &args.input, |out| graphs::graphml(&trace, out))?;
    Ok(0)
}

/// Writes a timeline.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn timeline(args: &OneToOneArgs) -> Result<i32, Failure> {
    let format = detect::detect(&args.input)?;
    if format == detect::Format::Kineto {
        write(args.out.as_deref(), &args.input, |out| timelines::of_kineto(&args.input, out))?;
        return Ok(0);
    }
    let trace = Stored::of(&args.input, format).ok_or_else(|| {
        let message = format!("expected a Chakra or Kineto trace, found a file of format \"{}\"", format.name());
        TraceError::new(&args.input, message)
    })?;
    let mut left_out = 0;
    write(args.out.as_deref(), &args.input, |out| {
        left_out = timelines::of_chakra(&trace, out)?;
        Ok(())
    })?;
    if left_out > 0 {
        say!("warning: {left_out} nodes wait for themselves or for nodes that do, and have no place on the timeline");
    }
    Ok(0)
}
