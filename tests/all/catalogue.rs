//! The shipped catalogue: every file under `systems/`, `workloads/` and `studies/` is read, linted and built. The folders
//! are the registry: a file that is added is tested. Figures that have a source outside this program (model.md sections 5
//! and 6, published layer sizes) are computed here by hand and compared.

use flowspace::model::compute::lanes_peak;
use flowspace::model::rate::chip_peak;
use flowspace::spec::{FromNode, Loader, Node, Origin, Problems, Reader, Value};
use flowspace::study::Study;
use flowspace::system::network::Arrangement;
use flowspace::system::options::ModelOptions;
use flowspace::system::source::Source;
use flowspace::system::{Chip, Link, Memory, Stack, SwitchPart, System, Technology, price};
use flowspace::workload::language::LanguageModel;
use flowspace::workload::{Op, Workload, WorkloadSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder, sorted. Anything but YAML files and the folders named is a stray.
fn files(folder: &str, folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}")) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        if path.is_dir() {
            assert!(folders.contains(&name.as_str()), "{folder}/{name}: a folder that no test reads");
        } else {
            assert!(name.ends_with(".yaml"), "{folder}/{name}: the catalogue holds .yaml files alone");
            found.push(path);
        }
    }
    assert!(!found.is_empty(), "{folder} is empty");
    found.sort();
    found
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

fn tree(path: &Path) -> Result<Node, Problems> {
    let node = Loader.load(path, None)?;
    Ok(Loader.expand(&node, "")?)
}

/// Reads every file of a folder; all problems of all files at once.
fn read_all<T>(files: Vec<PathBuf>, read: impl Fn(&Path) -> Result<T, Problems>) -> BTreeMap<String, T> {
    let mut good = BTreeMap::new();
    let mut bad = Vec::new();
    for path in files {
        match read(&path) {
            Ok(value) => {
                good.insert(stem(&path), value);
            }
            Err(problems) => bad.push(problems.to_string()),
        }
    }
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
    good
}

fn parts<T: FromNode>(folder: &str) -> BTreeMap<String, T> {
    read_all(files(folder, &[]), |path| Reader::read(&tree(path)?))
}

fn systems() -> BTreeMap<String, System> {
    read_all(
        files("systems", &["chips", "clusters", "cores", "memories", "links", "switches", "stacks", "technologies"]),
        |path| System::build(&System::load(path)?),
    )
}

fn workloads() -> BTreeMap<String, Workload> {
    read_all(files("workloads", &["language"]), |path| WorkloadSpec::build(&WorkloadSpec::load(path)?))
}

fn language_models() -> BTreeMap<String, LanguageModel> {
    read_all(files("workloads/language", &[]), |path| Reader::read(&tree(path)?))
}

fn studies() -> BTreeMap<String, Study> {
    read_all(files("studies", &["claims", "dfmodel"]), Study::load)
}

/// The studies of folders: each is called like its file, after the name of the folder.
fn folder_studies() -> BTreeMap<String, Study> {
    let of = |folder: &str| {
        let studies = read_all(files(&format!("studies/{folder}"), &[]), Study::load);
        studies.into_iter().map(|(file, study)| (format!("{folder}-{file}"), study)).collect::<Vec<_>>()
    };
    ["claims", "dfmodel"].into_iter().flat_map(of).collect()
}

#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    let error = (found - expected).abs() / expected.abs().max(f64::MIN_POSITIVE);
    assert!(error <= 1e-6, "{what}: found {found}, expected {expected}, relative difference {error:e}");
}

/// Names are what rows and figures call a part: two of a kind with one name could not be told apart. Every number of a
/// part has a source of its own, not one for all.
fn lint<'a>(kind: &str, named: impl Iterator<Item = (&'a String, &'a str, &'a Source)>) {
    let mut seen: BTreeMap<&str, &String> = BTreeMap::new();
    for (file, name, source) in named {
        assert!(!name.trim().is_empty(), "{kind}/{file}: no name");
        if let Some(other) = seen.insert(name, file) {
            panic!("{kind}/{file} and {kind}/{other} are both called {name:?}");
        }
        assert!(matches!(source, Source::Each(_)), "{kind}/{file}: give a source for each number");
    }
}

#[test]
fn every_part_reads_and_every_number_has_a_source() {
    let chips = parts::<Chip>("systems/chips");
    lint("chips", chips.iter().map(|(file, p)| (file, p.name.as_str(), &p.source)));
    let memories = parts::<Memory>("systems/memories");
    lint("memories", memories.iter().map(|(file, p)| (file, p.name.as_str(), &p.source)));
    let links = parts::<Link>("systems/links");
    lint("links", links.iter().map(|(file, p)| (file, p.name.as_str(), &p.source)));
    let stacks = parts::<Stack>("systems/stacks");
    // Numbers of a stack are fitted together, so that one source may stand for all of them.
    let names: BTreeSet<&str> = stacks.values().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), stacks.len(), "two stacks have one name: {names:?}");
    let switches = parts::<SwitchPart>("systems/switches");
    let technologies = parts::<Technology>("systems/technologies");
    lint("technologies", technologies.iter().map(|(file, p)| (file, p.name.as_str(), &p.source)));
    lint("switches", switches.iter().map(|(file, p)| (file, p.name.as_str(), &p.source)));
}

/// Clusters are of any size: they state no chips.
#[test]
fn every_cluster_builds() {
    for (file, system) in read_all(files("systems/clusters", &[]), |path| System::build(&System::load(path)?)) {
        assert_eq!(system.name, file, "a cluster is called like its file");
        assert!(system.stack.is_some() && system.chip.0.kernels.is_some(), "{file}: executions are predicted on it");
    }
}

#[test]
fn every_system_builds() {
    for (file, system) in systems() {
        assert_eq!(system.name, file, "a system is called like its file");
        assert_eq!(system.chips, Some(system.chip_count()), "{file}: states how many chips it has");
        for (what, by_part) in [("cost", price::cost(&system)), ("power", price::power(&system))] {
            let total = by_part.total();
            assert!(total.is_finite() && total >= by_part.chips && by_part.chips > 0.0, "{file}: {what} {by_part:?}");
        }
        assert!(
            system.network.dimensions.is_empty() || system.network.switch.is_some(),
            "{file}: its switches have no price"
        );
    }
}

#[test]
fn every_common_topology_has_a_system() {
    use Arrangement::{Dgx1, Dgx2, Dragonfly, FullyConnected, Ring, SingleChip, Switch, Torus2d, Torus3d};
    let used: BTreeSet<Arrangement> = systems().values().map(|s| s.network.topology).collect();
    for topology in [SingleChip, Ring, FullyConnected, Switch, Torus2d, Torus3d, Dragonfly, Dgx1, Dgx2] {
        assert!(used.contains(&topology), "no system under systems/ has topology {topology}");
    }
}

/// Language models have closed forms of their own (tested beside them); here: they read, names differ, and the graph of a layer is
/// there or refused with the field that has none.
#[test]
fn every_language_model_reads() {
    let models = language_models();
    let names: BTreeSet<&str> = models.values().map(|m| m.name.as_str()).collect();
    assert_eq!(names.len(), models.len(), "two language models have one name: {names:?}");
    for file in files("workloads/language", &[]) {
        let node = WorkloadSpec::load(&file).unwrap_or_else(|e| panic!("{e}"));
        match WorkloadSpec::build(&node) {
            Ok(workload) => assert!(workload.flop_per_iteration() > 0.0),
            Err(problems) => assert!(problems.0.iter().all(|p| !p.field.is_empty()), "{problems}"),
        }
    }
}

#[test]
fn every_workload_builds() {
    let workloads = workloads();
    let names: BTreeSet<&str> = workloads.values().map(|w| w.name.as_str()).collect();
    assert_eq!(names.len(), workloads.len(), "two workloads have one name: {names:?}");
    for (file, workload) in &workloads {
        let flop = workload.flop_per_iteration();
        assert!(flop.is_finite() && flop > 0.0, "{file}: {flop} FLOP");
        // What a repetition reads the one before must have written, or the layers would not chain.
        let carried = workload.tensors.iter().any(|t| t.carried_from.is_some());
        assert!(
            carried || workload.repeat == 1,
            "{file}: {} repetitions that do not follow from each other",
            workload.repeat
        );
    }
}

#[test]
fn every_point_of_every_study_builds() {
    for (file, study) in studies().into_iter().chain(folder_studies()) {
        assert_eq!(study.name(), file, "a study is called like its file");
        let count = study.count().expect("fewer than 2^64 points");
        let mut labels = BTreeSet::new();
        // Of many points some hundred, by a stride that meets every value of every axis: it shares no factor with their number.
        let shares = |stride: u64| (2..=stride).any(|f| stride.is_multiple_of(f) && count.is_multiple_of(f));
        let stride = (1 + count / 500..).find(|stride| !shares(*stride)).expect("a prime");
        for index in (0..count).step_by(usize::try_from(stride).expect("a small one")) {
            let point = study.point(index).unwrap_or_else(|e| panic!("{file}, point {index}:\n{e}"));
            assert!(point.system.as_ref().is_none_or(|s| s.chip_count() > 0));
            assert!(
                labels.insert(study.labels(index).join(" ")),
                "{file}: two points are called {:?}",
                study.labels(index)
            );
        }
    }
    assert_eq!(studies()["quickstart"].count(), Some(12));
    assert_eq!(studies()["gpt3-1t-80-systems"].count(), Some(80));
    let counts: Vec<(String, Option<u64>)> = folder_studies().iter().map(|(f, s)| (f.clone(), s.count())).collect();
    let expected = [
        ("claims-dataflow-chips", 2 * 4 * 2 * 2 * 2 * 4),
        ("claims-kernel-by-kernel", 60),
        ("claims-vendor", 60),
        ("dfmodel-design-space", 4 * 80 * 2),
        ("dfmodel-design-space-dfmodel", 4 * 80 * 2),
        ("dfmodel-joint", 2 * 2 * 4),
        ("dfmodel-mapping", 2 * 2 * 2 * 2),
        ("dfmodel-memory-3d", 2 * 2 * 3 * 5),
        ("dfmodel-rail-only", 2 * 9),
        ("dfmodel-sram-dram", 2 * 2 * 3 * 3),
    ];
    assert_eq!(counts, expected.map(|(file, count)| (file.to_string(), Some(count))));
}

/// model.md section 6: GFLOP/s as logged, SRAM, price and power of each chip.
#[test]
fn chips_have_dfmodels_figures() {
    let chips = parts::<Chip>("systems/chips");
    let table = [
        ("h100-dfmodel", 993_214.47, 118_489_090.0, 33_000.0, 750.0),
        ("tpu-v4-dfmodel", 275_251.187_5, 167_772_160.0, 4_474.816_901, 170.630_881_5),
        ("sn30-dfmodel", 614_400.0, 671_088_640.0, 16_522.250_23, 444.706_195_5),
        ("sn10-dfmodel", 307_200.0, 335_544_320.0, 16_522.250_23, 444.706_195_5),
        ("sn40l-dfmodel", 638_976.0, 545_259_520.0, 16_522.250_23, 444.706_195_5),
        ("wse-2-dfmodel", 7_513_228.96, 41_964_010_000.0, 3_025_964.118, 20_298.122_58),
        ("sn30", 614_400.0, 671_088_640.0, 16_522.250_23, 444.706_195_5),
        ("sn10", 307_200.0, 335_544_320.0, 16_522.250_23, 444.706_195_5),
        ("sn40l", 638_976.0, 545_259_520.0, 16_522.250_23, 444.706_195_5),
        ("wse-2", 7_513_228.96, 41_964_010_000.0, 3_025_964.118, 20_298.122_58),
        // Peaks as their kernels state them, the datasheets' power.
        ("h100", 989_400.0, 118_489_090.0, 33_000.0, 700.0),
        ("a100", 312_000.0, 88_080_384.0, 33_000.0, 400.0),
        ("tpu-v4", 275_000.0, 167_772_160.0, 4_474.816_901, 170.630_881_5),
        // Not DFModel's: datasheets.
        ("h200", 989_400.0, 118_489_090.0, 33_000.0, 700.0),
        ("gh200", 989_400.0, 118_489_090.0, 33_000.0, 700.0),
        ("mi210", 181_000.0, 8_388_608.0, 10_000.0, 300.0),
        ("mi250x", 383_000.0, 16_777_216.0, 15_000.0, 560.0),
        ("mi300x", 1_307_400.0, 268_435_456.0, 20_000.0, 750.0),
        ("gaudi-3", 1_677_000.0, 96e6, 15_625.0, 900.0),
        ("gaudi-2", 432_000.0, 48e6, 8_125.0, 600.0),
        // Not sold: no price.
        ("tpu-v5e", 197_000.0, 134_217_728.0, 0.0, 0.0),
        ("tpu-v5p", 459_000.0, 167_772_160.0, 0.0, 0.0),
    ];
    for (file, gflops, sram, price, power) in table {
        let chip = &chips[file];
        close(chip_peak(chip, &ModelOptions::flowspace(), 2.0) / 1e9, gflops, &format!("{file}: peak in GFLOP/s"));
        close(chip.sram.0, sram, &format!("{file}: SRAM"));
        close(chip.price.0, price, &format!("{file}: price"));
        close(chip.power.0, power, &format!("{file}: power"));
    }
    // Others, from their datasheets: cores, lanes, stages and clock are worth the peak that `kernels` states.
    let others = chips.iter().filter(|(file, _)| !table.iter().any(|row| row.0 == file.as_str()));
    // What is summed from its parts is nobody's chip.
    for (file, chip) in others.filter(|(_, chip)| chip.area.is_none()) {
        let kernels = chip.kernels.as_ref().unwrap_or_else(|| panic!("{file}: no figure in this test, and no kernels"));
        let stated = ["bf16", "fp16"].iter().filter_map(|word| kernels.peak_of(word)).fold(0.0, f64::max);
        let lanes = lanes_peak(chip, &ModelOptions::flowspace());
        assert!((lanes / stated - 1.0).abs() < 0.01, "{file}: {lanes} FLOP/s by lanes, {stated} stated");
    }
}

/// model.md sections 5 and 6: memories, links and switches of the design-space studies.
#[test]
fn memories_links_and_switches_have_dfmodels_figures() {
    let memories = parts::<Memory>("systems/memories");
    for (file, bandwidth, capacity, power) in
        [("hbm", 3072e9, 103_079_215_104.0, 0.056_24), ("ddr", 300e9, 1_099_511_627_776.0, 0.162_48)]
    {
        let memory = &memories[file];
        close(memory.bandwidth.0, bandwidth, &format!("{file}: bandwidth"));
        close(memory.capacity.map_or(0.0, |c| c.0), capacity, &format!("{file}: capacity"));
        close(memory.price.0, 1.0, &format!("{file}: price"));
        close(memory.power.0, power, &format!("{file}: power"));
    }
    let links = parts::<Link>("systems/links");
    for (file, bandwidth, power) in [("nvlink", 450e9, 0.0104), ("pcie", 50e9, 0.052)] {
        close(links[file].bandwidth.0, bandwidth, &format!("{file}: bandwidth"));
        close(links[file].price.0, 2.0, &format!("{file}: price"));
        close(links[file].power.0, power, &format!("{file}: power"));
    }
    let switch = &parts::<SwitchPart>("systems/switches")["switch"];
    close(switch.price.0, 24.0, "switch: price");
    close(switch.power.0, 0.052, "switch: power");
}

/// GB/s of links and of switch ports in each dimension, from model.md section 5, "Cost / power". X, Y, Z are the sizes of
/// the dimensions, n the chips, `bw` the bandwidths in GB/s.
fn ports(topology: Arrangement, bw: &[f64]) -> Vec<(f64, f64)> {
    let (x, y, n) = (8.0, 128.0, 1024.0);
    match topology {
        Arrangement::Torus2d => vec![(n * bw[0], 2.0 * y * bw[0]), (n * bw[1], 2.0 * x * bw[1])],
        Arrangement::Torus3d => {
            let (y, z) = (64.0, 2.0);
            vec![(n * bw[0], 2.0 * y * z * bw[0]), (n * bw[1], 2.0 * x * z * bw[1]), (n * bw[2], 2.0 * x * y * bw[2])]
        }
        Arrangement::Dragonfly => vec![(x * (x - 1.0) * y * bw[0], 0.0), (y * (y - 1.0) * bw[1], y * y * bw[1])],
        Arrangement::Dgx1 => vec![(n * bw[0], 2.0 * y * bw[0]), (y * bw[1], y * bw[1])],
        Arrangement::Dgx2 => vec![(n * bw[0], n * bw[0]), (y * bw[1], y * bw[1])],
        other => panic!("no formula for {other}"),
    }
}

/// Cost and power of each of the 80 systems from the labels of its point alone.
#[test]
fn cost_and_power_of_the_80_systems_by_hand() {
    let study = &studies()["gpt3-1t-80-systems"];
    assert_eq!(study.axis_names().collect::<Vec<_>>(), ["chip", "topology", "memory", "link"]);
    for index in 0..80 {
        let labels = study.labels(index);
        let (chip_price, chip_power) = match labels[0] {
            "h100" => (33_000.0, 750.0),
            "tpu-v4" => (4_474.816_901, 170.630_881_5),
            "sn30" => (16_522.250_23, 444.706_195_5),
            _ => (3_025_964.118, 20_298.122_58),
        };
        let topology = Arrangement::from_word(labels[1]).unwrap();
        let (memory_gbs, memory_w) = if labels[2] == "hbm" { (3072.0, 0.056_24) } else { (300.0, 0.162_48) };
        let (inner_gbs, inner_w) = if labels[3] == "nvlink" { (450.0, 0.0104) } else { (50.0, 0.052) };
        let ports = ports(topology, &[inner_gbs, 50.0, 50.0]);
        let switches: f64 = ports.iter().map(|(_, s)| s).sum();
        let links: f64 = ports.iter().map(|(l, _)| l).sum();
        let links_w: f64 = ports.iter().enumerate().map(|(i, (l, _))| l * if i == 0 { inner_w } else { 0.052 }).sum();

        let system = study.point(index).unwrap().system.unwrap();
        let (cost, power) = (price::cost(&system), price::power(&system));
        let what = labels.join(" ");
        assert_eq!(system.chip_count(), 1024, "{what}");
        close(cost.links, 2.0 * links, &format!("{what}: price of the links"));
        close(cost.switches, 24.0 * switches, &format!("{what}: price of the switches"));
        close(
            cost.total(),
            1024.0 * (chip_price + memory_gbs) + 2.0 * links + 24.0 * switches,
            &format!("{what}: price"),
        );
        close(
            power.total(),
            1024.0 * (chip_power + memory_gbs * memory_w) + links_w + 0.052 * switches,
            &format!("{what}: power"),
        );
    }
}

/// Totals that DFModel printed (golden.csv).
#[test]
fn cost_and_power_are_dfmodels_logged_ones() {
    let study = &studies()["gpt3-1t-80-systems"];
    for (labels, cost, power) in [
        (["h100", "torus-2d", "hbm", "nvlink"], 40_745_728.0, 958_402.462_379_932_4),
        (["tpu-v4", "torus-3d", "hbm", "nvlink"], 12_886_340.5, 370_494.878_115_654),
        (["sn30", "torus-2d", "ddr", "pcie"], 17_757_184.0, 511_325.011_354_923_25),
        (["sn30", "torus-2d", "ddr", "nvlink"], 21_033_984.0, 518_779.731_422_901_15),
    ] {
        let index = (0..80).find(|i| study.labels(*i) == labels).unwrap();
        let system = study.point(index).unwrap().system.unwrap();
        close(price::cost(&system).total(), cost, &format!("{labels:?}: price"));
        close(price::power(&system).total(), power, &format!("{labels:?}: power"));
    }
    let systems = systems();
    for (file, cost, power) in [
        ("sn30-1024-torus-2d", 17_757_184.0, 511_325.011_354_923_25),
        ("sn10-8-torus-2d", 140_978.0, 3_724.033_656_299_114),
        ("sn10-8-ring", 134_578.0, 3_700.633_655_816_316_6),
    ] {
        close(price::cost(&systems[file]).total(), cost, &format!("{file}: price"));
        close(price::power(&systems[file]).total(), power, &format!("{file}: power"));
    }
    // By hand: 16 x 15 links of 10 GB/s at $2, no switches.
    close(price::cost(&systems["sn40l-16-fully-connected"]).links, 4_800.0, "sn40l-16-fully-connected: links");
    // One chip has no network.
    assert_eq!(price::cost(&systems["wse-2-single"]).links, 0.0);
}

/// A network whose parts are files, written where `systems/` is.
fn system_of(network: &str) -> System {
    let text = format!(
        "name: x\nsource: test\nchip: chips/h100.yaml\nmemory: memories/hbm.yaml\nnetwork:\n  switch: switches/switch.yaml\n{network}"
    );
    let file = root().join("systems/in-a-test.yaml");
    System::build(&Node::parse(&file.display().to_string(), &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

/// DFModel prices no switch up to four chips and no link of a single one.
#[test]
fn small_systems_have_no_switches() {
    let ring = |size: u64| {
        system_of(&format!("  topology: ring\n  dimensions:\n    - {{ size: {size}, link: links/pcie.yaml }}\n"))
    };
    // Ring: X B links, 2 B of switches.
    close(price::cost(&ring(8)).links, 8.0 * 50.0 * 2.0, "ring of 8: links");
    close(price::cost(&ring(8)).switches, 2.0 * 50.0 * 24.0, "ring of 8: switches");
    close(price::cost(&ring(4)).links, 4.0 * 50.0 * 2.0, "ring of 4: links");
    assert_eq!(price::cost(&ring(4)).switches, 0.0);
    assert_eq!(price::cost(&ring(1)).links, 0.0);
}

/// FLOP of a GPT layer's forward pass and sample, S tokens: six products of 24 S h^2 in all, two of attention of 4 S^2 h in
/// all, seven elementwise kernels of h S, GeLU of 4 h S, softmax and dropout of heads S^2 each.
fn layer_flop(h: f64, heads: f64, s: f64) -> f64 {
    24.0 * s * h * h + 4.0 * s * s * h + 11.0 * h * s + 2.0 * heads * s * s
}

#[test]
fn transformer_flop_by_hand() {
    let workloads = workloads();
    close(
        workloads["gpt3-175b-forward"].flop_per_iteration(),
        layer_flop(12288.0, 96.0, 2048.0) * 96.0 * 2304.0,
        "gpt3-175b-forward",
    );
    close(
        workloads["gpt3-1t-forward"].flop_per_iteration(),
        layer_flop(25600.0, 160.0, 2048.0) * 128.0 * 3072.0,
        "gpt3-1t-forward",
    );
    // golden.csv: what DFModel printed for its graph of 41 kernels.
    close(workloads["gpt3-1t-training"].flop_per_iteration(), 3.850_722_404_619_78e19, "gpt3-1t-training");
    // The weights of all layers, 12 h^2 each: the models are as large as their names say.
    for (file, weights) in [
        ("gpt3-175b-training", 12.0 * 12288.0 * 12288.0 * 96.0),
        ("gpt3-1t-training", 12.0 * 25600.0 * 25600.0 * 128.0),
    ] {
        let workload = &workloads[file];
        let layer: f64 = workload.kernels.iter().filter(|k| k.owns_weight()).map(|k| k.weight_elements()).sum();
        close(layer * workload.repeat as f64, weights, &format!("{file}: weights"));
    }
    // Brown et al., table 2.1: batches of 3.2 million tokens.
    let batch = workloads["gpt3-175b-training"].global_batch * 2048;
    assert!((3_100_000..3_250_000).contains(&batch), "{batch} tokens");
}

/// He et al., table 1: a block of conv4_x is 1x1 256, 3x3 256, 1x1 1024 on 14 x 14 pixels.
#[test]
fn resnet_block_by_hand() {
    let block = &workloads()["resnet50-conv4"];
    let (reduce, filter, expand) = (102_760_448.0, 231_211_008.0, 102_760_448.0);
    assert_eq!(2.0 * 256.0 * 1024.0 * 196.0, reduce);
    assert_eq!(2.0 * 256.0 * (256.0 * 9.0) * 196.0, filter);
    assert_eq!(2.0 * 1024.0 * 256.0 * 196.0, expand);
    let flop = |prefix: &str| -> f64 {
        block.kernels.iter().filter(|k| k.name.starts_with(prefix) && k.is_gemm()).map(|k| k.flop()).sum()
    };
    assert_eq!(flop("reduce"), reduce);
    assert_eq!(flop("filter"), filter);
    assert_eq!(flop("expand"), expand);
    let elementwise: f64 = block.kernels.iter().filter(|k| k.op == Op::Elementwise).map(|k| k.flop()).sum();
    assert_eq!(elementwise, (256.0 + 256.0 + 1024.0) * 196.0);
    assert_eq!(block.flop_per_iteration(), 437_032_960.0 * 5.0 * 256.0);
    // Weights 256 x 1024 + 256 x 2304 + 1024 x 256.
    let weights: f64 = block.kernels.iter().map(|k| k.weight_elements()).sum();
    assert_eq!(weights, 1_114_112.0);
    // One tensor of 1024 x 196 two-byte elements goes from block to block, and the residual reads it too.
    assert_eq!(block.carried_bytes(), 1024.0 * 196.0 * 2.0);
    let carried = block.tensors.iter().find(|t| t.carried_from.is_some()).unwrap();
    let readers: Vec<&str> = carried.consumers.iter().map(|u| block.kernels[u.kernel].name.as_str()).collect();
    assert_eq!(readers, ["reduce", "add_relu"]);
}

/// The reader that these tests rely on is awake: a broken copy of a shipped part is refused, with its field.
#[test]
fn a_number_without_a_source_or_unit_is_refused() {
    let path = root().join("systems/chips/h100.yaml");
    let origin = Origin::named("broken.yaml");

    let mut chip = tree(&path).unwrap();
    let mut source = chip.get("source").unwrap().clone();
    if let Value::Map(entries) = &mut source.value {
        entries.retain(|(key, _, _)| key != "price");
    }
    chip.set("source", origin.clone(), source);
    let problems = Reader::read::<Chip>(&chip).unwrap_err().to_string();
    assert!(problems.contains("price: this number has no source"), "{problems}");

    let mut chip = tree(&path).unwrap();
    chip.set("sram", origin.clone(), Node::scalar("113", origin));
    let problems = Reader::read::<Chip>(&chip).unwrap_err().to_string();
    assert!(problems.contains("broken.yaml: sram: ") && problems.contains("\"113\" has no unit"), "{problems}");
}

/// FLOP of the state-space workloads. DFModel's runs: printed. Attention: 4 x 128 S^2 and S^2 of softmax.
#[test]
fn state_space_workloads_by_hand() {
    let workloads = workloads();
    let flop = |file: &str| workloads[file].flop_per_iteration();
    close(flop("mamba-1m-dfmodel"), 7_885_291_520.0, "mamba-1m-dfmodel");
    close(flop("hyena-1m-dfmodel"), 152_672_665_600.0, "hyena-1m-dfmodel");
    close(flop("attention-1m-dfmodel"), 513.0 * 1_048_576.0 * 1_048_576.0, "attention-1m-dfmodel");
    let weights = |file: &str| -> f64 {
        workloads[file].kernels.iter().map(|k| k.weight_elements()).sum::<f64>() * workloads[file].repeat as f64
    };
    close(weights("mamba-2.8b"), 64.0 * 41_123_840.0, "mamba-2.8b: weights");
    close(weights("hyenadna-1m"), 8.0 * 12.0 * 256.0 * 256.0, "hyenadna-1m: weights");
    // 24 h^2 FLOP a token in GEMMs; of each of 2 convolutions two FFTs of 2^21 points in 3 stages of 8 x 128 FLOP a point.
    let gemms = 24.0 * 256.0 * 256.0 * 1e6;
    let transforms = 4.0 * 3.0 * 8.0 * 128.0 * 256.0 * f64::from(1 << 21);
    let rest = flop("hyenadna-1m") / 8.0 - gemms - transforms;
    assert!(rest > 0.0 && rest < 0.05 * transforms, "{rest} of {transforms}");
}
