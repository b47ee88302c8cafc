//! Placements from outside: the shipped cores, graphs as large as real ones, files that go round, and, where `PLACE_BASELINES` names a file of
//! partitions by METIS, dagP and a MILP (`graphs: {PATH: {results: [{k, method, max_load_us, cut_bytes, load_cap_us, objective, status}]}}`, the paths below the folder above the file's), never worse than these.

use flowspace::place::cores::{Network, Wire};
use flowspace::place::instance::Request;
use flowspace::place::placement::{capacities, figures};
use flowspace::place::run::{Ask, front, place};
use flowspace::place::solve::{Engine, instance, solve};
use flowspace::place::spec::{ActorsSpec, CoresSpec};
use flowspace::place::{
    Actor, ActorGraph, Channel, Core, Cores, Fixed, Kind, Objective, Solved, Work, import, replicas, stability,
};
use flowspace::solver::record::Status;
use flowspace::spec::{Node, Reader};
use flowspace::system::source::Source;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Equal cores, 10 GB/s between them.
fn equal(k: usize) -> Cores {
    let core = |p| Core {
        name: format!("p{p}"),
        speed: 1.0,
        rates: [1e9, 1e9],
        memory_bandwidth: 1e10,
        firing_overhead: 0.0,
        memory: f64::INFINITY,
    };
    let wire = Wire { latency: 0.0, bandwidth: 1e10 };
    let network = Network::Levels(vec![(k as u64, wire)]);
    Cores { name: "equal".into(), cores: (0..k).map(core).collect(), local: Wire::FREE, network }
}

/// Graphs as they are built up.
struct Builder {
    graph: ActorGraph,
    state: u64,
}

impl Builder {
    fn new(name: &str) -> Self {
        let graph =
            ActorGraph { name: name.into(), actors: Vec::new(), channels: Vec::new(), batch: 4, others: Vec::new() };
        Self { graph, state: 7 }
    }
    /// A number from `low` to `high`.
    fn random(&mut self, low: u64, high: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (self.state >> 33) % (high - low + 1)
    }
    /// An actor of about so many microseconds.
    fn actor(&mut self, us: u64, before: &[usize], bytes: u64) -> usize {
        let us = self.random(us - us / 5, us + us / 5).max(1);
        let i = self.graph.actors.len();
        self.graph.actors.push(Actor {
            name: format!("a{i}"),
            kind: Kind::Matrix,
            work: Work::Measured { seconds: us as f64 / 1e6, deviation: 0.0 },
            state_bytes: 1000.0,
            fixed: Fixed::Seconds(0.0),
            outside: None,
        });
        self.graph.channels.extend(before.iter().map(|b| Channel {
            source: *b,
            source_port: "out".into(),
            target: i,
            target_port: format!("a{b}"),
            produced: 1,
            consumed: 1,
            initial: 0,
            token_bytes: bytes as f64,
            capacity: None,
        }));
        i
    }
}

/// ResNet-50's shape: a stem, 16 bottleneck blocks of three convolutions, norms and activations, a shortcut that is one of these in four; pooling and a
/// product whose weight is transposed: 176 actors.
fn resnet() -> ActorGraph {
    let mut b = Builder::new("resnet");
    let mut x = b.actor(2500, &[], 600_000);
    for us in [300, 200, 400] {
        x = b.actor(us, &[x], 3_000_000);
    }
    for (stage, blocks) in [3u64, 4, 6, 3].into_iter().enumerate() {
        for block in 0..blocks {
            let bytes = 3_200_000 >> stage;
            let entry = x;
            for (us, last) in [(700, false), (1800, false), (800, true)] {
                x = b.actor(us, &[x], bytes);
                x = b.actor(60, &[x], bytes);
                if !last {
                    x = b.actor(20, &[x], bytes);
                }
            }
            let mut shortcut = entry;
            if block == 0 {
                shortcut = b.actor(1200, &[entry], bytes);
                shortcut = b.actor(80, &[shortcut], bytes);
            }
            x = b.actor(40, &[x, shortcut], bytes);
            x = b.actor(25, &[x], bytes);
        }
    }
    x = b.actor(60, &[x], 8192);
    x = b.actor(5, &[x], 8192);
    let weight = b.actor(30, &[], 8_000_000);
    b.actor(200, &[x, weight], 4000);
    b.graph
}

/// A vision transformer's shape: layers of 70 actors, four of which are transposed weights that nothing comes before.
fn vit(layers: usize) -> ActorGraph {
    let mut b = Builder::new("vit");
    let mut x = b.actor(2000, &[], 600_000);
    let line = |b: &mut Builder, mut x: usize, list: &[u64]| {
        for us in list {
            x = b.actor(*us, &[x], 600_000);
        }
        x
    };
    for _ in 0..layers {
        let entry = x;
        let n = line(&mut b, x, &[250, 30, 20, 20]);
        let weight = b.actor(25, &[], 1_700_000);
        let q = b.actor(9000, &[n, weight], 1_800_000);
        let q = line(&mut b, q, &[20, 25, 25, 20, 800]);
        let heads: Vec<usize> = (0..3).map(|_| line(&mut b, q, &[30, 25, 25, 25, 25, 25])).collect();
        let s = b.actor(2500, &heads, 600_000);
        let s = line(&mut b, s, &[25, 25, 25, 25, 25, 20]);
        let weight = b.actor(25, &[], 600_000);
        let o = b.actor(3000, &[s, weight], 600_000);
        let o = line(&mut b, o, &[20, 25, 20]);
        x = b.actor(150, &[entry, o], 600_000);
        let entry = x;
        let mut f = line(&mut b, x, &[250, 25, 20]);
        for us in [12_000, 12_000] {
            let weight = b.actor(25, &[], 2_400_000);
            f = b.actor(us, &[f, weight], 2_400_000);
            f = line(&mut b, f, &[20, 1500, 20]);
        }
        x = b.actor(150, &[entry, f], 600_000);
        x = line(&mut b, x, &[20, 20, 20, 20]);
    }
    b.graph
}

fn request(n: usize, objective: Objective, acyclic: bool, seconds: f64) -> Request {
    Request { objective, acyclic, pins: vec![None; n], balance: 1.05, seconds: Some(seconds) }
}

/// A row of the table of docs/place.md (`--nocapture`).
fn tell(graph: &ActorGraph, cores: usize, best: &Solved) {
    let (us, gap) = (best.objective * 1e6, 100.0 * best.gap());
    println!(
        "| {}, {} actors | {cores} | {us:.0} us | {gap:.3} % | {:.2} |",
        graph.name,
        graph.actors.len(),
        best.seconds
    );
}

/// The exact engine proves what real graphs have: near chains, and near chains with actors that nothing comes before.
#[test]
fn graphs_like_real_ones_are_proven() {
    let resnet = resnet();
    assert_eq!(resnet.actors.len(), 176);
    for k in [2, 4, 8, 16] {
        let (cores, request) = (equal(k), request(176, Objective::Bottleneck, true, 60.0));
        let best = solve(&instance(&resnet, &cores, &request).unwrap(), Engine::Exact).unwrap().best;
        assert_eq!(best.status, Status::Optimal, "{k} cores: {best:?}");
    }
    let wide = random(800);
    let (cores, asked) = (equal(8), request(800, Objective::Bottleneck, true, 60.0));
    let best = solve(&instance(&wide, &cores, &asked).unwrap(), Engine::Exact).unwrap().best;
    assert!(best.gap() <= 0.01, "{best:?}");
    tell(&wide, 8, &best);
    let vit = vit(12);
    assert!(vit.actors.len() > 700, "{}", vit.actors.len());
    let (cores, request) = (equal(8), request(vit.actors.len(), Objective::Bottleneck, true, 60.0));
    let best = solve(&instance(&vit, &cores, &request).unwrap(), Engine::Exact).unwrap().best;
    tell(&vit, 8, &best);
    assert!(best.gap() <= 0.01, "{best:?}");
}

/// The programme, told nothing but the start, agrees with the exact engine on a graph of real size.
#[test]
fn the_programme_agrees_on_a_graph_of_real_size() {
    let resnet = resnet();
    for objective in [Objective::Bottleneck, Objective::Cut] {
        let (cores, request) = (equal(4), request(176, objective, true, 60.0));
        let instance = instance(&resnet, &cores, &request).unwrap();
        let exact = solve(&instance, Engine::Exact).unwrap().best;
        let both = solve(&instance, Engine::Highs).unwrap();
        assert_eq!((exact.status, both.engines[0].status), (Status::Optimal, Status::Optimal), "{objective}");
        assert!((exact.objective - both.engines[0].objective).abs() <= 1e-6 * exact.objective, "{objective}");
    }
}

/// A wide graph: each actor reads one or two of the 60 before it.
fn random(actors: usize) -> ActorGraph {
    let mut b = Builder::new("random");
    for i in 0..actors {
        let mut before = Vec::new();
        for _ in 0..b.random(1, 2) {
            let back = b.random(1, 60) as usize;
            if i > 0 {
                before.push(i.saturating_sub(back));
            }
        }
        before.sort_unstable();
        before.dedup();
        let us = b.random(10, 3000);
        b.actor(us, &before, 100_000);
    }
    b.graph
}

/// 10,000 actors on 64 cores: a placement that obeys the order, with a gap; with `PLACE_LARGE` also a near chain of as many.
#[test]
fn ten_thousand_actors_have_a_stated_gap() {
    let mut graphs = vec![random(10_000)];
    if std::env::var_os("PLACE_LARGE").is_some() {
        graphs.push(vit(150));
    }
    for graph in graphs {
        let n = graph.actors.len();
        let (cores, request) = (equal(64), request(n, Objective::Bottleneck, true, 30.0));
        let best = solve(&instance(&graph, &cores, &request).unwrap(), Engine::Exact).unwrap().best;
        let core_of = best.core_of.clone().unwrap();
        assert!(graph.channels.iter().all(|c| core_of[c.source] <= core_of[c.target]));
        let f = figures(&graph, &cores, &core_of, &capacities(&graph)).unwrap();
        assert!((f.bottleneck_s - best.objective).abs() <= 1e-9 * best.objective);
        tell(&graph, 64, &best);
        assert!(best.bound > 0.0 && best.gap() < 0.05, "gap {}", best.gap());
    }
}

/// Whenever the time is over there is a bound of what more time finds, and (but for `cut`) a placement.
#[test]
fn bounds_are_bounds_however_short_the_time() {
    let cores = equal(4);
    for graph in [resnet(), random(300)] {
        let kinds = [Objective::Bottleneck, Objective::Cut, Objective::Sum];
        for (objective, acyclic) in kinds.into_iter().flat_map(|o| [(o, true), (o, false)]) {
            let run = |seconds: f64| {
                let request = request(graph.actors.len(), objective, acyclic, seconds);
                solve(&instance(&graph, &cores, &request).unwrap(), Engine::Exact).unwrap().best
            };
            let best = run(2.0);
            for seconds in [0.0, 0.001, 0.01, 0.1] {
                let short = run(seconds);
                // Only a balance may take time to keep.
                let found = short.core_of.is_some() || objective == Objective::Cut;
                assert!(found, "{} {objective} {acyclic} {seconds}", graph.name);
                assert!(short.bound <= best.objective * (1.0 + 1e-9), "{} {objective} {acyclic} {seconds}", graph.name);
                assert!(best.bound <= short.objective * (1.0 + 1e-9), "{} {objective} {acyclic} {seconds}", graph.name);
            }
        }
    }
}

/// Every shipped cores file is called like its file, joins the cores it counts, and has a source for each number; each takes a graph.
#[test]
fn every_cores_file_is_sound() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("systems/cores")).unwrap() {
        let path = entry.unwrap().path();
        let node = CoresSpec::load(&path).unwrap();
        let spec: CoresSpec = Reader::read(&node).unwrap_or_else(|e| panic!("{e}"));
        assert!(matches!(spec.source, Source::Each(_)), "{}: a source for each number", path.display());
        assert_eq!(Some(spec.name.as_str()), path.file_stem().and_then(|s| s.to_str()));
        let cores = spec.cores();
        let last = cores.len() - 1;
        assert!(cores.transfer_seconds(0, last, 1e6) >= cores.transfer_seconds(0, 1, 1e6));
        count += 1;
    }
    assert!(count >= 4);
}

/// What a 4 x 48 machine, a mesh and a matrix of distances charge, by hand.
#[test]
fn distances_by_hand() {
    let read =
        |file: &str| CoresSpec::build(&CoresSpec::load(&root().join("systems/cores").join(file)).unwrap()).unwrap();
    let kunpeng = read("kunpeng-920-4x48.yaml");
    assert_eq!(kunpeng.len(), 192);
    let near = 50e-9 + 1e6 / 3.91e9;
    assert!((kunpeng.transfer_seconds(0, 47, 1e6) - near).abs() < 1e-15);
    assert!((kunpeng.transfer_seconds(47, 48, 1e6) - (200e-9 + 1e6 / 1.25e9)).abs() < 1e-15);
    let mesh = read("wse-2-mesh.yaml");
    // From (0, 1) to (2, 0): three hops.
    assert!((mesh.transfer_seconds(1, 64, 4400.0) - (3.0 * 0.91e-9 + 1e-6)).abs() < 1e-15);
    let text = "name: n\nsource: 'assumed: by hand'\ncores: [{name: c, count: 4, matrix: 1 GFLOP/s, vector: 1 GFLOP/s, memory_bandwidth: 1 GB/s}]\n\
                network: {distances: {matrix: [[10, 21], [21, 10]], latency: 1 ns, bandwidth: 1 GB/s}}\n";
    let numa = CoresSpec::build(&Node::parse("n.yaml", text).unwrap()).unwrap();
    assert!((numa.transfer_seconds(0, 1, 0.0) - 10e-9).abs() < 1e-18);
    assert!((numa.transfer_seconds(1, 2, 0.0) - 21e-9).abs() < 1e-18);
}

fn flowspace(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowspace")).args(words).current_dir(folder).output().unwrap()
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("flowspace-place-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

const FILTER: &str = "kind: actors\nname: filter\nbatch: 4\nactors:\n  - {name: source, kernel: data, time: 1 ms}\n  - {name: low, time: 30 ms, state: 1 kB}\n  \
                      - {name: high, time: 20 ms, state: 1 kB}\n  - {name: sum, time: 10 ms}\nchannels:\n  - {from: source, to: low, token: 4 kB}\n  \
                      - {from: source, to: high, token: 4 kB}\n  - {from: low, to: sum, token: 4 kB}\n  - {from: high, to: sum, token: 4 kB}\n";
const TWO: &str = "name: two\nsource: 'assumed: a test'\ncores:\n  - {name: core, count: 4, matrix: 1 GFLOP/s, vector: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 64 kB}\n\
                   network: {levels: [{size: 4, latency: 1 us, bandwidth: 1 GB/s}]}\n";

/// A placement is written, derived again, and refused when it is edited into something it is not.
#[test]
fn a_placement_goes_round() {
    let at = folder("round");
    std::fs::write(at.join("filter.yaml"), FILTER).unwrap();
    std::fs::write(at.join("two.yaml"), TWO).unwrap();
    let words =
        ["place", "--workload", "filter.yaml", "--cores", "two.yaml", "--first", "2", "--acyclic", "--out", "p.yaml"];
    let out = flowspace(&at, &words);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(at.join("p.yaml")).unwrap();
    // By hand: {source, low} of 31 ms, {high, sum} of 30 ms.
    assert!(text.contains("status: optimal") && text.contains("bottleneck_s: 0.031"), "{text}");
    let out = flowspace(&at, &["check", "p.yaml"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success() && said.contains("follow from its placement"),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    for (from, to, says) in [
        ("bottleneck_s: 0.031", "bottleneck_s: 0.03", "result.bottleneck_s"),
        ("  source: core.0", "  source: core.1", "goes back from"),
        ("  sum: core.1", "  sum: core.7", "has no core \"core.7\""),
        ("bound: 0.031", "bound: 0.032", "is above the objective"),
    ] {
        let edited = text.replace(from, to);
        assert_ne!(edited, text, "{from}\n{text}");
        std::fs::write(at.join("q.yaml"), edited).unwrap();
        let out = flowspace(&at, &["check", "q.yaml"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && said.contains(says), "{from}: {said}");
    }
    let _ = std::fs::remove_dir_all(at);
}

/// Batch split by hand: two replicas of half the work on two cores each, and the front says so.
#[test]
fn replicas_by_hand() {
    let graph = ActorsSpec::build(&Node::parse("f.yaml", FILTER).unwrap()).unwrap();
    let cores = CoresSpec::build(&Node::parse("t.yaml", TWO).unwrap()).unwrap();
    let ask = Ask {
        objective: Objective::Bottleneck,
        acyclic: true,
        balance: 1.03,
        replicas: 2,
        depth: Some(2),
        engine: Engine::Exact,
        seconds: Some(10.0),
    };
    let placed = place(&graph, &cores, &ask, &[]).unwrap();
    // Half the samples take half the time but for one reading of the 1 kB of weights (1 us at 1 GB/s): 0.5, 15.0005, 10.0005 and 5 ms. Distributor and collector
    // move 4 kB in and out, 8 us at 1 GB/s, on the first and on the last core.
    let busy: Vec<f64> = placed.figures.busy_s.iter().map(|s| (s * 1e10).round() / 1e4).collect();
    assert_eq!(busy, [15_508.5, 15_000.5, 15_500.5, 15_008.5]);
    assert_eq!((placed.best.status, placed.best.gap()), (Status::Optimal, 0.0));
    assert!(placed.figures.acyclic);
    let points = front(&graph, &cores, &Ask { depth: None, ..ask.clone() }, (1, 4)).unwrap();
    let shapes: Vec<(u64, u64)> = points.iter().map(|p| (p.replicas, p.depth)).collect();
    assert_eq!(shapes, [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]);
    assert!(points.iter().any(|p| p.on_front));
    let refused = place(&graph, &cores, &Ask { replicas: 3, depth: None, ..ask }, &[]).unwrap_err().join("\n");
    assert!(refused.contains("3 replicas do not divide the 4 samples") && refused.contains("1, 2, 4"), "{refused}");
}

/// ART's data parallelism, DP-1 to DP-4, by hand: one actor measured with 4 and with 12 samples (2 ms, and 1 ms a sample), so that 12, 6, 4 and 3 samples take
/// 14, 8, 6 and 5 ms, the last beyond what was measured. Samples and results have 1 kB each; distributor and collector move 12 kB in and out, 24 us at 1 GB/s.
#[test]
fn data_parallelism_of_one_to_four_by_hand() {
    let measured = |samples: u64| {
        let text = format!(
            "kind: actors\nname: dp\nbatch: {samples}\nactors:\n  - {{name: net, time: {} ms, takes: {samples} kB, gives: {samples} kB}}\n",
            2 + samples
        );
        ActorsSpec::build(&Node::parse("dp.yaml", &text).unwrap()).unwrap()
    };
    let mut graph = measured(12);
    graph.others.push(measured(4));
    let cores = CoresSpec::build(&Node::parse("t.yaml", TWO).unwrap()).unwrap();
    let ask = Ask {
        objective: Objective::Bottleneck,
        acyclic: true,
        balance: 1.03,
        replicas: 1,
        depth: None,
        engine: Engine::Exact,
        seconds: Some(10.0),
    };
    let points = front(&graph, &cores, &ask, (1, 4)).unwrap();
    // A share passes between cores in 1 us and a microsecond a kilobyte: the first replica's on its way back, the last one's on its way there, those of
    // replicas between them both ways.
    for (r, bottleneck, latency) in [
        (1, 14.0, 14.0),
        (2, 8.024, 0.024 + 0.007 + 8.024),
        (3, 6.024, 0.024 + 2.0 * 0.005 + 6.024),
        (4, 5.024, 0.024 + 2.0 * 0.004 + 5.024),
    ] {
        let found = points.iter().find(|p| (p.replicas, p.depth) == (r, 1)).unwrap();
        assert!((found.bottleneck_s * 1e3 - bottleneck).abs() < 1e-9, "{found:?}");
        assert!((found.latency_s * 1e3 - latency).abs() < 1e-9, "{found:?}");
        assert!((found.throughput - 12e3 / bottleneck).abs() < 1e-6 && found.gap == 0.0, "{found:?}");
    }
    // Of one measurement alone: what does not depend on samples is stated, or the overhead of a firing and one reading of the weights; here neither is there.
    graph.others.clear();
    let linear = front(&graph, &cores, &ask, (2, 2)).unwrap();
    assert!((linear[0].bottleneck_s * 1e3 - 7.024).abs() < 1e-9, "{linear:?}");
}

/// What the model counts for fewer samples is what replicas take, caches and all; and the rule for graphs known once gives the same FLOP and bytes.
#[test]
fn replicas_of_a_counted_workload_are_counted() {
    let node = import::load(&root().join("workloads/resnet50-conv4.yaml")).unwrap();
    let mut graph = import::build(&node, import::Build::default()).unwrap();
    let core = &equal(1).cores[0];
    let by_rule = replicas::with_samples(&graph, graph.batch / 4, core);
    import::shares(&node, import::Build::default(), &mut graph, (1, 8)).unwrap();
    assert_eq!(graph.others.iter().map(|g| graph.batch / g.batch).collect::<Vec<_>>(), [2, 4, 8]);
    let counted = replicas::with_samples(&graph, graph.batch / 4, core);
    let asked = import::Build { batch: Some(graph.batch / 4), ..import::Build::default() };
    assert_eq!(counted.actors, import::build(&node, asked).unwrap().actors);
    let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * x.max(y);
    for (a, b) in counted.actors.iter().zip(&by_rule.actors) {
        let (Work::Counted { flop: f, bytes: c }, Work::Counted { flop: g, bytes: d }) = (a.work, b.work) else {
            panic!()
        };
        assert!(near(f, g) && near(c, d), "{}: {f} {g} {c} {d}", a.name);
    }
    // Weights are read by each replica: four quarters are more than the whole.
    let bytes = |g: &ActorGraph| -> f64 {
        g.actors.iter().map(|a| if let Work::Counted { bytes, .. } = a.work { bytes } else { panic!() }).sum()
    };
    assert!(4.0 * bytes(&counted) > 1.01 * bytes(&graph));
}

/// Weights that do not vary leave every boundary where it is; those that do give a steadiest placement no worse than the base.
#[test]
fn stability_of_a_cut() {
    let graph = resnet();
    let (cores, request) = (equal(4), request(176, Objective::Bottleneck, true, 20.0));
    let best = solve(&instance(&graph, &cores, &request).unwrap(), Engine::Exact).unwrap().best;
    let (base_s, base) = (best.objective, best.core_of.unwrap());
    let still = stability::study(&graph, &cores, &request, (Engine::Exact, &base), (3, 0.0)).unwrap();
    assert!(still.same == 3 && still.boundaries.iter().all(|b| b.moved == 0), "{still:?}");
    let moved = stability::study(&graph, &cores, &request, (Engine::Exact, &base), (8, 0.1)).unwrap();
    assert!(moved.best_worst <= moved.base_worst && moved.worst_bound <= moved.best_worst);
    // Each sample by itself has its optimum at the bound: the worst of them is one.
    assert!(moved.worst_bound > 0.9 * base_s && moved.best_worst < 1.1 * base_s, "{moved:?}");
    let again = stability::drawn(&graph, 0.1, 1);
    let f = figures(&again, &cores, &moved.best, &capacities(&again)).unwrap();
    assert!(f.acyclic && f.bottleneck_s <= moved.best_worst * (1.0 + 1e-9));
    assert!(!moved.boundaries.is_empty() && moved.boundaries.iter().all(|b| b.moved <= 8));
}

/// Layers written out: each copy has its kernels and hands its result to the next.
#[test]
fn layers_are_written_out() {
    let node = import::load(&root().join("workloads/gpt3-175b-forward.yaml")).unwrap();
    let one = import::build(&node, import::Build { unroll: Some(1), ..import::Build::default() }).unwrap();
    let three = import::build(&node, import::Build { unroll: Some(3), ..import::Build::default() }).unwrap();
    assert_eq!(three.actors.len(), 3 * one.actors.len());
    assert!(three.channels.len() > 3 * one.channels.len());
    // One chain: no copy but the first begins by itself.
    let order = three.order().unwrap();
    assert_eq!(order.len(), three.actors.len());
    let begins = |g: &ActorGraph| (0..g.actors.len()).filter(|i| g.channels.iter().all(|c| c.target != *i)).count();
    assert!(begins(&three) <= begins(&one) * 3 - 2, "{} of {}", begins(&three), begins(&one));
}

/// Partitions of real graphs by others: never worse, at the same number of parts and the same balance; prints the table of docs/place.md.
#[test]
fn never_worse_than_the_baselines() {
    let Some(file) = std::env::var_os("PLACE_BASELINES").map(PathBuf::from) else { return };
    let text = std::fs::read_to_string(&file).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let above = file.parent().and_then(Path::parent).unwrap();
    println!(
        "| graph | cores | method | largest load (us) | cut (MB) | ours, acyclic (us) | gap | s | ours, free (us) | gap | s | cut, same load (MB) | gap | s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (path, entry) in document["graphs"].as_object().unwrap() {
        let node = import::load(Path::new(&format!("trace:{}", above.join(path).display()))).unwrap();
        let graph = import::build(&node, import::Build::default()).unwrap();
        assert_eq!(graph.actors.len() as u64, entry["vertices"].as_u64().unwrap(), "{path}: actors");
        assert_eq!(graph.channels.len() as u64, entry["edges"].as_u64().unwrap(), "{path}: channels");
        for row in entry["results"].as_array().unwrap() {
            let (k, method) = (row["k"].as_u64().unwrap() as usize, row["method"].as_str().unwrap());
            let (load, cut) = (row["max_load_us"].as_f64().unwrap(), row["cut_bytes"].as_f64().unwrap());
            let total = row["total_us"].as_f64().unwrap();
            let cores = equal(k);
            // No MILP closes the gap of a free cut: it would run for its whole time.
            let run = |objective: Objective, acyclic: bool, balance: f64| {
                let engine = if objective == Objective::Cut && !acyclic { Engine::Exact } else { Engine::Auto };
                let pins = vec![None; graph.actors.len()];
                let request = Request { objective, acyclic, pins, balance, seconds: Some(20.0) };
                solve(&instance(&graph, &cores, &request).unwrap(), engine).unwrap().best
            };
            // Weights are the same: the baseline's parts give its loads.
            let parts: Vec<usize> =
                row["part"].as_array().unwrap().iter().map(|p| p.as_u64().unwrap() as usize).collect();
            let theirs = figures(&graph, &cores, &parts, &capacities(&graph)).unwrap();
            assert!((theirs.bottleneck_s * 1e6 - load).abs() < 1e-6, "{path} {k} {method}: weights differ");
            assert!((theirs.cut_bytes - cut).abs() < 1.0, "{path} {k} {method}: bytes differ");
            let cap = row["load_cap_us"].as_f64().unwrap_or(load);
            let balance = (cap + 1e-3) / (total / k as f64);
            let chain = theirs.acyclic;
            let (acyclic, free) = (run(Objective::Bottleneck, true, 1.03), run(Objective::Bottleneck, false, 1.03));
            let cheaper = run(Objective::Cut, chain, balance);
            println!(
                "| {} | {k} | {method} | {load:.0} | {:.2} | {:.0} | {:.1e} | {:.2} | {:.0} | {:.1e} | {:.2} | {:.2} | {:.1e} | {:.1} |",
                graph.name,
                cut / 1e6,
                acyclic.objective * 1e6,
                acyclic.gap(),
                acyclic.seconds,
                free.objective * 1e6,
                free.gap(),
                free.seconds,
                cheaper.objective / 1e6,
                cheaper.gap(),
                cheaper.seconds
            );
            let ours = if chain { &acyclic } else { &free };
            assert!(ours.objective * 1e6 <= load + 1e-6, "{path} {k} {method}: {} us", ours.objective * 1e6);
            assert!(cheaper.objective <= cut + 1.0, "{path} {k} {method}: cut {}", cheaper.objective);
            if method == "milp_bottleneck" && row["status"] == "kOptimal" {
                assert_eq!(acyclic.status, Status::Optimal, "{path} {k}");
            }
            if method == "milp_t_plus_comm" {
                let sum = run(Objective::Sum, true, 1.03);
                assert!(sum.objective * 1e6 <= row["objective"].as_f64().unwrap() + 1e-3, "{path} {k}: {sum:?}");
            }
        }
    }
}

/// Against METIS as it is, recursive and k-way, on the graphs of these tests and, where `PLACE_BASELINES` names a file, on its graphs: never worse, free as METIS
/// places; prints the table of docs/place.md. (`cargo test --release --features metis --test all place::against_metis -- --nocapture`)
#[cfg(feature = "metis")]
#[test]
fn against_metis() {
    let mut graphs = vec![resnet(), vit(3), random(400)];
    if let Some(file) = std::env::var_os("PLACE_BASELINES").map(PathBuf::from) {
        let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let above = file.parent().and_then(Path::parent).unwrap();
        for path in document["graphs"].as_object().unwrap().keys() {
            let node = import::load(Path::new(&format!("trace:{}", above.join(path).display()))).unwrap();
            graphs.push(import::build(&node, import::Build::default()).unwrap());
        }
    }
    println!(
        "| graph | actors | cores | METIS | its bottleneck (us) | ours | less | its cut (MB) | ours | less | bound |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut rows = 0;
    for graph in &graphs {
        let n = graph.actors.len();
        for k in [2, 4, 8, 16] {
            let cores = equal(k);
            let run = |objective: Objective, balance: f64, engine: Engine| {
                let request = Request { objective, acyclic: false, pins: vec![None; n], balance, seconds: Some(20.0) };
                solve(&instance(graph, &cores, &request).unwrap(), engine).unwrap()
            };
            let ours = run(Objective::Bottleneck, 1.03, Engine::Exact).best;
            for theirs in run(Objective::Bottleneck, 1.03, Engine::Metis).engines {
                let parts = theirs.core_of.unwrap();
                let f = figures(graph, &cores, &parts, &capacities(graph)).unwrap();
                let cut = run(Objective::Cut, f.imbalance * (1.0 + 1e-9), Engine::Exact).best;
                let less = |x: f64, y: f64| 100.0 * (y - x) / y.max(1e-12);
                println!(
                    "| {} | {n} | {k} | {} | {:.0} | {:.0} | {:.1} % | {:.2} | {:.2} | {:.1} % | {:.2} |",
                    graph.name,
                    theirs.engine.trim_start_matches("metis-"),
                    f.bottleneck_s * 1e6,
                    ours.objective * 1e6,
                    less(ours.objective, f.bottleneck_s),
                    f.cut_bytes / 1e6,
                    cut.objective / 1e6,
                    less(cut.objective, f.cut_bytes),
                    cut.bound / 1e6
                );
                assert!(ours.objective <= f.bottleneck_s * (1.0 + 1e-9), "{} {k} {}", graph.name, theirs.engine);
                assert!(cut.objective <= f.cut_bytes * (1.0 + 1e-9), "{} {k} {}", graph.name, theirs.engine);
                rows += 1;
            }
        }
    }
    assert_eq!(rows, 8 * graphs.len());
}

/// The shipped study: sixteen rows, each with a placement and a bound that is not above it; more cores are never worse.
#[test]
fn a_study_of_placements() {
    let at = folder("study");
    let out = flowspace(
        &at,
        &["study", "run", &root().join("studies/placement.yaml").display().to_string(), "--no-plots", "--out", "out"],
    );
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let mut table = csv::Reader::from_path(at.join("out/results.csv")).unwrap();
    let header = table.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap_or_else(|| panic!("{name}"));
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 16);
    // Placements have no system, and nothing is said of one.
    assert!(header.iter().all(|name| name != "system" && name != "cost_usd"), "{header:?}");
    let number = |row: &csv::StringRecord, name: &str| row[column(name)].parse::<f64>().unwrap();
    for row in &rows {
        let (value, bound) = (number(row, "objective"), number(row, "bound"));
        let slowest = number(row, "place_bottleneck_s");
        // Engines count whole picoseconds.
        assert!(bound > 0.0 && bound <= value && (value - slowest).abs() <= 1e-9 * value, "{row:?}");
        assert_eq!(&row[column("minimized")], "bottleneck");
        assert!(number(row, "samples_per_s") <= 32.0 / value * (1.0 + 1e-9));
    }
    // Points are machine, cores, order: two rows further there are twice the cores.
    for (few, more) in rows.iter().zip(&rows[2..]).enumerate().filter(|(i, _)| i % 8 < 6).map(|(_, pair)| pair) {
        assert!(number(more, "objective") <= number(few, "objective") * (1.0 + 1e-9));
    }
    let _ = std::fs::remove_dir_all(at);
}
