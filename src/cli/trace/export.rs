//! `flowspace trace to-json`, `to-text`, `to-et`, `to-dot`, `to-graphml`, `timeline`.

use crate::cli::{Failure, output};
use crate::spec::node::io_reason;
use crate::trace::chakra::json::{Form, JsonWriter};
use crate::trace::chakra::text::TextWriter;
use crate::trace::detect::{self, Loaded};
use crate::trace::{TraceError, chakra, graphs, timeline as timelines};
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::{self, BufWriter, Write};
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

type Out = BufWriter<Box<dyn Write>>;

/// Opens the output, lets `write` fill it, and says what went wrong in whose terms.
fn fill(path: Option<&Path>, input: &Path, write: impl FnOnce(&mut Out) -> io::Result<()>) -> Result<(), Failure> {
    output::check(path.map(Path::to_path_buf).as_ref(), [input.to_path_buf()])?;
    let inner: Box<dyn Write> = match path {
        Some(path) => Box::new(File::create(path).map_err(|e| output::failed(path, &e))?),
        None => Box::new(io::stdout()),
    };
    let mut out = BufWriter::with_capacity(1 << 18, inner);
    match (write(&mut out).and_then(|()| out.flush()), path) {
        (Ok(()), _) => Ok(()),
        // The reader went away: nothing is wrong.
        (Err(e), None) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        (Err(e), Some(path)) => Err(output::failed(path, &e)),
        (Err(e), None) => Err(Failure::input(format!("cannot write to standard output: {}", io_reason(&e)))),
    }
}

/// What can be done with a Chakra trace node by node.
trait Sink {
    fn start(&mut self, metadata: &chakra::Metadata) -> io::Result<()>;
    fn node(&mut self, node: &chakra::Node) -> io::Result<()>;
}

/// Passes a trace on node by node: an `.et` is never held whole.
fn stream(input: &Path, sink: &mut dyn Sink) -> Result<io::Result<()>, Failure> {
    if detect::detect(input)? == detect::Format::Chakra {
        let reader = chakra::Reader::new(crate::trace::input::open(input)?, input)?;
        if let Err(e) = sink.start(reader.metadata()) {
            return Ok(Err(e));
        }
        for node in reader {
            if let Err(e) = sink.node(&node?) {
                return Ok(Err(e));
            }
        }
        return Ok(Ok(()));
    }
    let trace = detect::load_chakra(input)?;
    Ok(sink.start(&trace.metadata).and_then(|()| trace.nodes.iter().try_for_each(|n| sink.node(n))))
}

/// Streams into an output; faults of the input win over those of the output.
fn stream_to(
    path: Option<&Path>,
    input: &Path,
    make: impl for<'a> Fn(&'a mut Out) -> Box<dyn Sink + 'a>,
    end: &str,
) -> Result<(), Failure> {
    detect::detect(input)?;
    let mut failed = None;
    fill(path, input, |out| {
        let result = {
            let mut sink = make(out);
            stream(input, sink.as_mut())
        };
        match result {
            Ok(written) => written.and_then(|()| out.write_all(end.as_bytes())),
            Err(failure) => {
                failed = Some(failure);
                Ok(())
            }
        }
    })?;
    match failed {
        Some(failure) => {
            if let Some(path) = path {
                // Half a file is worse than none. That it cannot be removed changes nothing about the failure.
                let _ = std::fs::remove_file(path);
            }
            Err(failure)
        }
        None => Ok(()),
    }
}

struct JsonSink<'a> {
    out: Option<&'a mut Out>,
    form: Form,
    writer: Option<JsonWriter<&'a mut Out>>,
}

impl Sink for JsonSink<'_> {
    fn start(&mut self, metadata: &chakra::Metadata) -> io::Result<()> {
        if let Some(out) = self.out.take() {
            self.writer = Some(JsonWriter::new(out, self.form, metadata)?);
        }
        Ok(())
    }
    fn node(&mut self, node: &chakra::Node) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), |w| w.node(node))
    }
}

struct TextSink<'a> {
    out: Option<&'a mut Out>,
    writer: Option<TextWriter<&'a mut Out>>,
}

impl Sink for TextSink<'_> {
    fn start(&mut self, metadata: &chakra::Metadata) -> io::Result<()> {
        if let Some(out) = self.out.take() {
            self.writer = Some(TextWriter::new(out, metadata)?);
        }
        Ok(())
    }
    fn node(&mut self, node: &chakra::Node) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), |w| w.node(node))
    }
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
    // The writer itself would end the list; here the sink is gone by then.
    let end = if form == Form::Array { "\n]\n" } else { "" };
    stream_to(args.out.as_deref(), &args.input, |out| Box::new(JsonSink { out: Some(out), form, writer: None }), end)?;
    Ok(0)
}

/// Writes text protobuf.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_text(args: &OneToOneArgs) -> Result<i32, Failure> {
    stream_to(args.out.as_deref(), &args.input, |out| Box::new(TextSink { out: Some(out), writer: None }), "")?;
    Ok(0)
}

/// Writes `.et`.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_et(args: &OneToOneArgs) -> Result<i32, Failure> {
    let Some(path) = &args.out else {
        return Err(Failure::input("--out is needed: a .et is not for the terminal"));
    };
    let trace = detect::load_chakra(&args.input)?;
    output::check([path], [args.input.clone()])?;
    chakra::write(&trace, path)?;
    Ok(0)
}

/// Writes Graphviz.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_dot(args: &OneToOneArgs) -> Result<i32, Failure> {
    let trace = detect::load_chakra(&args.input)?;
    fill(args.out.as_deref(), &args.input, |out| graphs::dot(&trace, out))?;
    Ok(0)
}

/// Writes GraphML.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn to_graphml(args: &OneToOneArgs) -> Result<i32, Failure> {
    let trace = detect::load_chakra(&args.input)?;
    fill(args.out.as_deref(), &args.input, |out| graphs::graphml(&trace, out))?;
    Ok(0)
}

/// Writes a timeline.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn timeline(args: &OneToOneArgs) -> Result<i32, Failure> {
    let mut left_out = 0;
    match detect::load(&args.input)? {
        (_, Loaded::Chakra(trace)) => fill(args.out.as_deref(), &args.input, |out| {
            left_out = timelines::of_chakra(&trace, out)?;
            Ok(())
        })?,
        (_, Loaded::Kineto(trace)) => fill(args.out.as_deref(), &args.input, |out| timelines::of_kineto(&trace, out))?,
        (format, _) => {
            let message = format!("expected a Chakra or Kineto trace, found a file of format \"{}\"", format.name());
            return Err(TraceError::new(&args.input, message).into());
        }
    }
    if left_out > 0 {
        say!("warning: {left_out} nodes wait for themselves or for nodes that do, and have no place on the timeline");
    }
    Ok(0)
}
