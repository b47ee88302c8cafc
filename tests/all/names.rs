//! The catalogue that travels in the binary: names instead of paths, from folders without files.

use super::scratch::Scratch;
use flowspace::spec::Loader;
use flowspace::spec::catalogue::{self, Kind, entries};
use flowspace::study::Study;
use flowspace::system::System;
use flowspace::workload::WorkloadSpec;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The answer without the seconds it took.
#[track_caller]
fn answer_of(scratch: &Scratch, args: &[&str]) -> Value {
    let mut json: Value = serde_json::from_str(&scratch.succeed(&[args, &["--format", "json"]].concat())).unwrap();
    let object = json.as_object_mut().unwrap();
    for seconds in ["solve_s", "solves"] {
        assert!(object.remove(seconds).is_some(), "{seconds}");
    }
    json
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folders are the registry: what is on disk is in the binary, word for word, and every name is found again.
#[test]
fn every_file_travels_and_every_name_is_found() {
    fn below(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|e| e == "yaml") {
                found.insert(path.strip_prefix(repository()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let mut on_disk = BTreeSet::new();
    for folder in ["systems", "workloads", "studies", "validation"] {
        below(&repository().join(folder), &mut on_disk);
    }
    assert_eq!(on_disk, catalogue::paths().map(str::to_string).collect());
    for entry in entries() {
        assert_eq!(std::fs::read_to_string(repository().join(entry.path)).unwrap(), entry.text, "{}", entry.path);
        assert_eq!(catalogue::find(&entry.name, Some(entry.kind)), Ok(entry));
        assert_eq!(catalogue::find(&format!("{}/{}", entry.kind.plural(), entry.name), None), Ok(entry));
    }
    let named: BTreeSet<&str> = entries().iter().map(|e| e.path).collect();
    let unnamed: Vec<&str> = catalogue::paths().filter(|path| !named.contains(path)).collect();
    assert_eq!(unnamed, ["validation/bounds.yaml", "validation/chips.yaml", "validation/machines.yaml"]);
}

/// The file on disk, the name, and a copy in another folder are one and the same thing.
#[test]
fn a_name_and_a_copy_mean_what_the_file_means() {
    let scratch = Scratch::new("names");
    for entry in entries() {
        let file = format!("{}-{}.yaml", entry.kind.word(), entry.name);
        let copy = PathBuf::from(scratch.write(&file, &entry.portable().unwrap()));
        let disk = repository().join(entry.path);
        let tree = |path: &Path| match entry.kind {
            Kind::System => System::load(path).and_then(|node| System::inlined(&node)).unwrap().to_json(),
            Kind::Workload => WorkloadSpec::load(path).unwrap().to_json(),
            _ => {
                let node = Loader.open(path, Some(entry.kind)).unwrap();
                let mut tree = Loader.expand_as(&node, "", Some(entry.kind)).unwrap();
                for part in [&["area", "technology"][..], &["generic"]] {
                    tree.inline(part, &Loader).unwrap();
                }
                tree.to_json()
            }
        };
        if entry.kind == Kind::Study {
            let read = |path: &Path| Study::load(path).unwrap_or_else(|e| panic!("{e}"));
            let studies = [read(&disk), read(Path::new(&entry.name)), read(&copy)];
            for study in &studies[1..] {
                assert_eq!(study.count(), studies[0].count(), "{}", entry.name);
                let last = study.count().unwrap() - 1;
                for index in [0, last / 2, last] {
                    assert_eq!(study.labels(index), studies[0].labels(index));
                    assert!(study.point(index).unwrap() == studies[0].point(index).unwrap(), "{} {index}", entry.name);
                }
            }
            continue;
        }
        assert_eq!(tree(&disk), tree(Path::new(&entry.name)), "{}", entry.name);
        assert_eq!(tree(&disk), tree(&copy), "{}", entry.name);
    }
}

#[test]
fn names_work_in_an_empty_folder_and_so_does_a_copy() {
    let scratch = Scratch::new("names");
    let by_name = ["map", "--workload", "gpt3-175b-forward", "--system", "sn10-8-torus-2d", "--sharding", "two-pass"];
    let answer = answer_of(&scratch, &by_name);
    scratch.write("my.yaml", &scratch.succeed(&["show", "sn10-8-torus-2d"]));
    scratch.write("work.yaml", &scratch.succeed(&["show", "workloads/gpt3-175b-forward"]));
    let copied = ["map", "--workload", "work.yaml", "--system", "./my.yaml", "--sharding", "two-pass"];
    assert_eq!(answer_of(&scratch, &copied), answer);
    // Parts by name in a file of one's own.
    let own = "from: sn10-8-torus-2d\nname: mine\nchip: sn30\n";
    scratch.write("own.yaml", own);
    let faster =
        answer_of(&scratch, &["map", "--workload", "work.yaml", "--system", "own.yaml", "--sharding", "two-pass"]);
    let time = |answer: &Value| answer["iteration_s"].as_f64().unwrap();
    assert!(time(&faster) < time(&answer), "twice the cores: {} {}", time(&faster), time(&answer));
    // A path goes before a name.
    scratch.write("sn10-8-torus-2d", &own.replace("sn10-8-torus-2d", "catalogue:systems/sn10-8-torus-2d.yaml"));
    assert_eq!(answer_of(&scratch, &by_name), faster);
}

/// A study by names in an empty folder, then the same by the paths of the repository over the same results: nothing is solved again.
#[test]
fn results_do_not_depend_on_where_a_study_stands() {
    let scratch = Scratch::new("names");
    let study = |workload: &str, system: &str, chips: [&str; 2]| {
        format!(
            "name: two\nworkload: {workload}\nsystem: {system}\naxes:\n  - name: chip\n    field: system.chip\n    values: [{}]\n\
             solve: {{ sharding: two_pass }}\n",
            chips.join(", ")
        )
    };
    scratch.write("names.yaml", &study("gpt3-175b-forward", "base-64", ["h100", "sn30"]));
    let disk = |path: &str| repository().join(path).display().to_string();
    let chips = [disk("systems/chips/h100.yaml"), disk("systems/chips/sn30.yaml")];
    let paths = study(&disk("workloads/gpt3-175b-forward.yaml"), &disk("systems/base-64.yaml"), [&chips[0], &chips[1]]);
    scratch.write("paths.yaml", &paths);
    let first = scratch.succeed(&["study", "run", "names.yaml", "--out", "results", "--no-plots"]);
    assert!(first.contains("2 solved in"), "{first}");
    let rows = std::fs::read_to_string(scratch.0.join("results/results.csv")).unwrap();
    let again = scratch.succeed(&["study", "run", "paths.yaml", "--out", "results", "--no-plots"]);
    assert!(again.contains("0 solved in"), "{again}");
    assert_eq!(std::fs::read_to_string(scratch.0.join("results/results.csv")).unwrap(), rows);
}

#[test]
fn the_quick_start_runs_by_its_name() {
    let scratch = Scratch::new("names");
    let said = scratch.succeed(&["study", "run", "quickstart", "--no-plots"]);
    assert!(said.contains("12 points:") && scratch.0.join("outputs/quickstart/results.csv").is_file(), "{said}");
}

#[test]
fn lists_have_every_name_and_its_figures() {
    let scratch = Scratch::new("names");
    let json: Value = serde_json::from_str(&scratch.succeed(&["list", "--format", "json"])).unwrap();
    let text = scratch.succeed(&["list"]);
    for kind in Kind::ALL {
        let listed: Vec<&str> =
            json[kind.plural()].as_array().unwrap().iter().filter_map(|r| r["name"].as_str()).collect();
        let there: Vec<&str> = entries().iter().filter(|e| e.kind == kind).map(|e| e.name.as_str()).collect();
        assert_eq!(listed, there, "{}", kind.plural());
        assert!(there.iter().all(|name| text.contains(name)), "{}", kind.plural());
    }
    let row = |kind: &str, name: &str| -> Value {
        json[kind].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone()
    };
    // 2 x 1056 x 16 x 16 x 1.837 GHz; 80 GB at 3.35 TB/s by its memory's file.
    let h100 = row("chips", "h100");
    assert_eq!(h100["peak_tflop_per_s"], 989.4);
    assert_eq!((&h100["style"], &h100["memory"]), (&"kernel_by_kernel".into(), &"h100-80gb-hbm3".into()));
    assert_eq!(h100["sram_mib"], 113);
    assert_eq!(row("chips", "wse-2")["validated_by"], "not validated");
    assert_eq!(row("chips", "wse-2")["validated_error_pct"], Value::Null);
    let selene = row("systems", "selene-2022");
    assert!(selene["validated_by"].as_str().unwrap().contains("korthikanti 1.6 %"), "{selene}");
    assert_eq!(row("systems", "h100-dgx-8")["chips"], 8);
    assert_eq!(row("workloads", "llama3-70b")["parameters_billion"], 70.554);
    assert_eq!(row("studies", "quickstart")["points"], 12);
    let csv = scratch.succeed(&["list", "chips", "--format", "csv"]);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("name,style,peak_tflop_per_s,sram_mib,"));
    assert_eq!(lines.count(), entries().iter().filter(|e| e.kind == Kind::Chip).count());
}
