//! The pages of documentation for each kind of file (`docs/files`): what `flowspace schema KIND --format markdown` prints. The fields come
//! from the definitions that read them, the examples from the whole files in `docs/files/examples`.

use super::schema::Kind;
use crate::execution::ExecutionFile;
use crate::execution::inference::file::ServingFile;
use crate::place::file::PlacementSpec;
use crate::place::spec::{ActorsSpec, CoresSpec};
use crate::plan::file::PlanSpec;
use crate::report::csv;
use crate::spec::markdown::{Page, render, without_example};
use crate::spec::schema::document;
use crate::spec::{FromNode, Problem};
use crate::study::spec::StudySpec;
use crate::system::{Chip, Link, Memory, Stack, SwitchPart, System, Technology};
use crate::units::{self, Quantity};
use crate::validate::read::COLUMNS;
use crate::workload::WorkloadSpec;

macro_rules! example {
    ($what:literal, $file:literal) => {
        ($what, include_str!(concat!("../../docs/files/examples/", $file)))
    };
}

/// Structures with a page of their own, and the page.
const PAGES: &[(&str, &str)] = &[
    ("Chip", "chip.md"),
    ("Memory", "memory.md"),
    ("Link", "link.md"),
    ("SwitchPart", "switch.md"),
    ("Stack", "stack.md"),
    ("Technology", "technology.md"),
    ("System", "system.md"),
    ("CoresSpec", "cores.md"),
    ("DfmodelLayer", "workload.md"),
    ("LanguageModel", "workload.md"),
    ("DlrmSpec", "workload.md"),
    ("ResidualSpec", "workload.md"),
    ("HplSpec", "workload.md"),
    ("FftSpec", "workload.md"),
    ("MambaSpec", "workload.md"),
    ("HyenaSpec", "workload.md"),
    ("GraphSpec", "workload.md"),
    ("TraceSpec", "workload.md"),
];

/// What stands on top of every page of fields.
const HOW: &str =
    "Units and how files name each other: [README.md](README.md). This page is written by `flowspace schema";

/// A kind of file that a structure describes: its page, and what is made of the structure.
pub(super) struct Described {
    page: Page<'static>,
    render: fn(&Page<'_>) -> Result<String, Problem>,
    without_example: fn(&Page<'_>) -> Result<Vec<String>, Problem>,
    /// The JSON Schema, under a title.
    pub(super) schema: fn(&str) -> serde_json::Value,
}

fn described<T: FromNode>(
    title: &'static str,
    intro: &'static str,
    examples: &'static [(&'static str, &'static str)],
) -> Described {
    let page = Page { title, intro, examples, elsewhere: PAGES };
    Described { page, render: render::<T>, without_example: without_example::<T>, schema: document::<T> }
}

/// What a kind of file is; `None` of tables.
pub(super) fn of(kind: Kind) -> Option<Described> {
    Some(match kind {
        Kind::Workload => {
            let file = described::<WorkloadSpec>(
                "Workload files",
                "What is computed. `kind:` says which of the structures below a file holds.",
                &[
                    example!("A language model with experts, trained", "language-model.yaml"),
                    example!(
                        "A language model with compressed keys and values, serving",
                        "language-model-serving.yaml"
                    ),
                    example!("A language model of segments", "language-model-segments.yaml"),
                    example!("A model of images", "language-model-images.yaml"),
                    example!("An encoder beside a decoder", "language-model-encoder.yaml"),
                    example!("DFModel's layer, trained", "dfmodel-layer.yaml"),
                    example!("The same generating token by token", "dfmodel-layer-decode.yaml"),
                    example!("A recommendation model", "dlrm.yaml"),
                    example!("A residual network", "residual-network.yaml"),
                    example!("LU factorisation", "hpl.yaml"),
                    example!("A Fourier transform", "fft.yaml"),
                    example!("A Mamba model", "mamba.yaml"),
                    example!("A Hyena model", "hyena.yaml"),
                    example!("A graph, kernel by kernel", "graph.yaml"),
                    example!("A graph with its backward pass", "graph-training.yaml"),
                    example!("A graph of several blocks", "graph-blocks.yaml"),
                    example!("A recorded trace", "trace.yaml"),
                ],
            );
            // Its structures stand on this page, not elsewhere.
            Described { page: Page { elsewhere: &[], ..file.page }, ..file }
        }
        Kind::System => described::<System>(
            "System files",
            "On what it is computed: many equal chips, each with its memory, joined by a network.",
            &[
                example!("A system of shipped parts", "system.yaml"),
                example!("A system with every option of the model stated", "system-options.yaml"),
            ],
        ),
        Kind::Chip => described::<Chip>(
            "Chip files",
            "A chip, named under `chip:` of a [system](system.md).",
            &[
                example!("A chip that runs kernel by kernel", "chip.yaml"),
                example!("A chip whose area, power and price are summed from its parts", "chip-area.yaml"),
            ],
        ),
        Kind::Memory => described::<Memory>(
            "Memory files",
            "A memory, named under `memory:` or `offload:` of a [system](system.md).",
            &[example!("A memory", "memory.yaml"), example!("Stacks of memory", "memory-stacks.yaml")],
        ),
        Kind::Link => described::<Link>(
            "Link files",
            "A link, named under `network: dimensions: link:` of a [system](system.md).",
            &[example!("A link", "link.yaml")],
        ),
        Kind::Switch => described::<SwitchPart>(
            "Switch files",
            "A switch, named under `network: switch:` of a [system](system.md).",
            &[example!("A switch", "switch.yaml")],
        ),
        Kind::Technology => described::<Technology>(
            "Technology files",
            "A process technology, named under `area: technology:` of a [chip](chip.md): what area, power and price of the chip are summed from ([codesign.md](../codesign.md)).",
            &[example!("A technology", "technology.yaml")],
        ),
        Kind::Stack => described::<Stack>(
            "Stack files",
            "The software of a [system](system.md), named under `stack:`. It counts for language models (`kind: language_model`) alone.",
            &[example!("A stack", "stack.yaml")],
        ),
        Kind::Study => described::<StudySpec>(
            "Study files",
            "Many points at once: `flowspace study run FILE`. A base workload and a base system, and axes that change fields of them or of `solve:`. The results are described in [results.md](results.md).",
            &[
                example!("Axes, rules, plots and every setting of `solve`", "study.yaml"),
                example!("The front of a grid, found and proven without solving every point", "study-front.yaml"),
                example!("Several workloads with weights", "study-mix.yaml"),
                example!("Systems of equal price, power or number", "study-budget.yaml"),
                example!("Training of a language model, most decisions given", "study-training.yaml"),
                example!("Serving within limits", "study-serving.yaml"),
                example!("Placements on the cores of a chip", "study-place.yaml"),
            ],
        ),
        Kind::Plan => described::<PlanSpec>(
            "Plan files",
            "The decisions of a mapping, as `flowspace map --plan-out FILE` writes them. `flowspace check` derives the figures again, `flowspace map --plan` solves anew what `pin:` leaves open, `flowspace explain` says what binds.",
            &[example!("A plan", "plan.yaml")],
        ),
        Kind::Execution => described::<ExecutionFile>(
            "Execution files",
            "How a language model is executed: `flowspace map --execution FILE`. What such a file states is not searched. `flowspace map --plan-out FILE` writes one with the mapping of its blocks, its figures, the workload and the system: `flowspace check` derives the figures again, `flowspace map --plan` searches anew what `pin:` leaves open.",
            &[
                example!("An execution", "execution.yaml"),
                example!("One with the mapping of its layers, that stands alone", "execution-layer.yaml"),
                example!("One with the mapping of the graph of its blocks", "execution-blocks.yaml"),
            ],
        ),
        Kind::Serving => described::<ServingFile>(
            "Serving files",
            "How a batch of a language model is served, as `flowspace map --plan-out FILE` writes it for a model with `pass: inference`: `flowspace check` derives the figures again, `flowspace map --plan` searches anew what `pin:` leaves open.",
            &[example!("64 requests on two replicas of four chips", "serving.yaml")],
        ),
        Kind::Cores => described::<CoresSpec>(
            "Cores files",
            "The cores of a chip, for `flowspace place --cores FILE` ([../place.md](../place.md)).",
            &[
                example!("Two sockets", "cores.yaml"),
                example!("A mesh", "cores-mesh.yaml"),
                example!("Cores at given distances", "cores-distances.yaml"),
            ],
        ),
        Kind::Actors => described::<ActorsSpec>(
            "Actor graphs",
            "Actors and the channels between them, for `flowspace place --workload FILE` ([../place.md](../place.md)).",
            &[example!("Measured and counted actors", "actors.yaml")],
        ),
        Kind::Placement => described::<PlacementSpec>(
            "Placement files",
            "Which actor lies on which core, as `flowspace place --out FILE` writes it ([../place.md](../place.md)); `flowspace check` derives its figures again.",
            &[example!("A placement", "placement.yaml")],
        ),
        Kind::Points | Kind::Columns => return None,
    })
}

/// The page of `kind`.
///
/// # Errors
/// The [`Problem`] of an example that is no YAML.
pub fn page(kind: Kind) -> Result<String, Problem> {
    match of(kind) {
        Some(file) => {
            let intro = format!("{} {HOW} {} --format markdown`.", file.page.intro, kind.word());
            (file.render)(&Page { intro: &intro, ..file.page })
        }
        None if kind == Kind::Points => Ok(points()),
        None => Ok(format!(
            "# Columns of results.csv\n\nEvery study writes one row a point. {HOW} columns`.\n\n{}",
            csv::reference()
        )),
    }
}

/// Fields of `kind` that no example states.
///
/// # Errors
/// The [`Problem`] of an example that is no YAML.
pub fn fields_without_example(kind: Kind) -> Result<Vec<String>, Problem> {
    of(kind).map_or(Ok(Vec::new()), |file| (file.without_example)(&file.page))
}

/// The header and one row of a file of points, from the examples of its columns.
pub fn example_points() -> String {
    let quoted = |text: &str| if text.contains(',') { format!("{text:?}") } else { text.to_string() };
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    let row: Vec<String> = COLUMNS.iter().map(|c| quoted(c.example)).collect();
    format!("{}\n{}\n", names.join(","), row.join(","))
}

fn points() -> String {
    let mut out = format!(
        "# Files of measured points\n\nCSV with a header, for `flowspace validate --points FILE`. Columns may stand in any order; blank means not \
         stated; columns of other names are named and left out. What is predicted from a row, and how: [../validation.md](../validation.md). \
         {HOW} points --format markdown`.\n\n| column | needed | meaning | example |\n|---|---|---|---|\n"
    );
    for column in &COLUMNS {
        let needed = if column.needed { "yes" } else { "" };
        out.push_str(&format!("| `{}` | {needed} | {} | `{}` |\n", column.name, column.doc, column.example));
    }
    out.push_str(&format!("\nOne point with all of them:\n\n```csv\n{}```\n", example_points()));
    out
}

/// The index of the pages, with the units.
pub fn index() -> String {
    let mut out = String::from(
        "# Kinds of files\n\nEvery file is YAML but the tables of points and results, which are CSV. Each page lists every field with its notation, \
         default, meaning and an example, and ends with whole files. `flowspace schema KIND` prints the same as a JSON Schema, with which an \
         editor completes and checks.\n\n| file | says |\n|---|---|\n",
    );
    for (file, says) in [
        ("workload", "what is computed: a model, a benchmark, a graph, a recorded trace"),
        ("system", "on what: chip, memory, network, software, and by which model"),
        ("chip", "a chip and its kernels"),
        ("memory", "a memory"),
        ("link", "a link of a network"),
        ("switch", "a switch of a network"),
        ("technology", "what a process makes of area, energy and price"),
        ("stack", "software: host times, what is fused, how it serves"),
        ("study", "many points: axes, rules, settings of the search, plots"),
        ("plan", "the decisions of a mapping and its figures"),
        ("execution", "how a language model is executed"),
        ("serving", "how a batch of a language model is served"),
        ("cores", "the cores of a chip, for placing actors"),
        ("actors", "an actor graph"),
        ("placement", "which actor lies on which core"),
        ("points", "measured points, for `flowspace validate`"),
        ("results", "the columns of a study's results.csv"),
    ] {
        out.push_str(&format!("| [{file}]({file}.md) | {says} |\n"));
    }
    out.push_str(
        "\n## Files that name files\n\nWhere a page says *path of a file, or* a structure, the structure may stand in place or in a file of its own. A path is \
         relative to the file that names it. `from: PATH` takes a file and replaces the keys that stand beside it:\n\n```yaml\nchip: { from: \
         ../systems/chips/h100.yaml, price: $25_000, source: \"assumed: a discount\" }\n```\n\n## Quantities\n\nA quantity is a number and a unit; a bare number is \
         refused. Underscores group digits.\n\n| quantity | units | example |\n|---|---|---|\n",
    );
    macro_rules! rows {
        ($($quantity:ident),*) => { $( out.push_str(&row::<units::$quantity>()); )* };
    }
    rows!(
        Bytes,
        Bandwidth,
        FlopRate,
        Flop,
        Seconds,
        Frequency,
        Power,
        Price,
        PricePerBandwidth,
        PricePerCapacity,
        PowerPerBandwidth,
        EnergyPerByte,
        EnergyPerFlop,
        PricePerEnergy,
        Area,
        AreaPerBandwidth,
        CapacityPerArea,
        PowerPerArea,
        PricePerArea,
        DefectDensity,
        Length,
        Years
    );
    out
}

fn row<Q: Quantity>() -> String {
    let units: Vec<String> = Q::UNITS.iter().map(|(unit, _)| format!("`{unit}`")).collect();
    format!("| {} | {} | `{}` |\n", Q::NAME, units.join(", "), Q::EXAMPLE)
}
