//! The pages of documentation for each kind of file are what the program prints, state an example of every field, and their
//! whole files are read by the reader that they are written for. `FLOWSPACE_BLESS=1 cargo test --release --test all pages::` writes the pages
//! again.

use clap::ValueEnum as _;
use flowspace::cli::pages::{example_points, fields_without_example, index, page};
use flowspace::cli::schema::Kind;
use flowspace::execution::ExecutionFile;
use flowspace::execution::file::Whole;
use flowspace::execution::inference::file as serving;
use flowspace::place::file::PlacementSpec;
use flowspace::place::spec::{ActorsSpec, CoresSpec};
use flowspace::plan::file;
use flowspace::spec::{FromNode, Loader, Node, Reader};
use flowspace::study::Study;
use flowspace::system::{Chip, Link, Memory, Stack, SwitchPart, System, Technology};
use flowspace::validate::read;
use flowspace::workload::WorkloadSpec;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/files")
}

/// The page's file: that of the columns of a study's results has another name than its kind.
fn file_name(kind: Kind) -> String {
    let word = kind.word();
    format!("{}.md", if word == "columns" { "results" } else { &word })
}

#[test]
fn the_pages_are_what_the_program_prints() {
    let mut stale = Vec::new();
    let pages = Kind::value_variants().iter().map(|kind| (file_name(*kind), page(*kind).unwrap()));
    for (name, text) in pages.chain([("README.md".to_string(), index())]) {
        let path = folder().join(&name);
        if std::fs::read_to_string(&path).unwrap_or_default() != text {
            if std::env::var_os("FLOWSPACE_BLESS").is_some() {
                std::fs::write(&path, &text).unwrap();
            } else {
                stale.push(name);
            }
        }
    }
    assert!(stale.is_empty(), "differ from the program: {stale:?}; FLOWSPACE_BLESS=1 writes them");
}

#[test]
fn every_field_has_an_example() {
    let missing: Vec<(String, Vec<String>)> = Kind::value_variants()
        .iter()
        .map(|kind| (kind.word(), fields_without_example(*kind).unwrap()))
        .filter(|(_, fields)| !fields.is_empty())
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

fn example(name: &str) -> Node {
    Loader.load(&folder().join("examples").join(name), None).unwrap()
}

fn reads<T: FromNode>(name: &str) {
    Reader::read::<T>(&example(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// All of them, so that a new file is not forgotten here.
#[test]
fn the_examples_are_read() {
    let mut left: Vec<String> = std::fs::read_dir(folder().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for (name, check) in [
        ("chip.yaml", reads::<Chip> as fn(&str)),
        ("memory.yaml", reads::<Memory>),
        ("link.yaml", reads::<Link>),
        ("switch.yaml", reads::<SwitchPart>),
        ("stack.yaml", reads::<Stack>),
        ("technology.yaml", reads::<Technology>),
        ("chip-area.yaml", reads::<Chip>),
        ("memory-stacks.yaml", reads::<Memory>),
        ("execution.yaml", reads::<ExecutionFile>),
        ("execution-layer.yaml", |name| drop(Whole::read(&example(name)).unwrap())),
        ("execution-blocks.yaml", |name| drop(Whole::read(&example(name)).unwrap())),
        ("serving.yaml", |name| drop(serving::Whole::read(&example(name)).unwrap())),
        ("cores.yaml", |name| drop(CoresSpec::build(&example(name)).unwrap())),
        ("cores-mesh.yaml", |name| drop(CoresSpec::build(&example(name)).unwrap())),
        ("cores-distances.yaml", |name| drop(CoresSpec::build(&example(name)).unwrap())),
        ("actors.yaml", |name| drop(ActorsSpec::build(&example(name)).unwrap())),
        ("placement.yaml", reads::<PlacementSpec>),
        // Its files are not there; language models with relative positions are no graphs.
        ("trace.yaml", reads::<WorkloadSpec>),
        ("language-model.yaml", reads::<WorkloadSpec>),
        ("language-model-serving.yaml", reads::<WorkloadSpec>),
        ("language-model-segments.yaml", reads::<WorkloadSpec>),
        ("language-model-encoder.yaml", reads::<WorkloadSpec>),
        ("system.yaml", |name| drop(System::build(&example(name)).unwrap())),
        ("system-options.yaml", |name| drop(System::build(&example(name)).unwrap())),
        ("study.yaml", |name| drop(Study::load(&folder().join("examples").join(name)).unwrap())),
        ("study-front.yaml", |name| drop(Study::load(&folder().join("examples").join(name)).unwrap())),
        ("study-mix.yaml", |name| drop(Study::load(&folder().join("examples").join(name)).unwrap())),
        ("study-budget.yaml", |name| drop(Study::load(&folder().join("examples").join(name)).unwrap())),
        ("study-training.yaml", |name| drop(Study::load(&folder().join("examples").join(name)).unwrap())),
        ("study-serving.yaml", |name| drop(Study::load(&folder().join("examples").join(name)).unwrap())),
        ("study-place.yaml", |name| drop(Study::load(&folder().join("examples").join(name)).unwrap())),
        ("plan.yaml", |name| drop(file::read(&example(name)).unwrap())),
    ] {
        check(name);
        left.retain(|other| other != name);
    }
    for name in left {
        WorkloadSpec::build(&example(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn the_example_of_points_is_read() {
    let file = read::read("points.csv", example_points().as_bytes()).unwrap();
    assert_eq!((file.rows.len(), file.remarks.len()), (1, 0), "{:?}", file.remarks);
}
