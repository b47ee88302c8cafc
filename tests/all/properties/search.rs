//! The whole search on small transformers and small systems.

use crate::properties::{check, near};
use flowspace::mapping::request::LeftOpen;
use flowspace::mapping::search::{Engine, MapError, Passes, Request, winner_model};
use flowspace::mapping::solver::Limits;
use flowspace::mapping::{Answer, Infeasible, Status, find, map};
use flowspace::plan::Plan;
use flowspace::spec::Node;
use flowspace::spec::read::{Fraction, Ref, Share, Table};
use flowspace::system::kernels::{Burst, Kernels, Tile};
use flowspace::system::network::Arrangement;
use flowspace::system::options::Charge;
use flowspace::system::source::Source;
use flowspace::system::{Chip, Dimension, Efficiency, Link, Memory, ModelOptions, Network, Style, SwitchPart, System};
use flowspace::units::{
    Bandwidth, Bytes, EnergyPerByte, EnergyPerFlop, FlopRate, Frequency, Power, PowerPerBandwidth, Price,
    PricePerBandwidth, Seconds,
};
use flowspace::workload::dfmodel_layer::{DfmodelLayer, Kind, Pass};
use flowspace::workload::{Phase, Workload, WorkloadSpec};
use proptest::prelude::*;
use std::cell::Cell;

fn source() -> Source {
    Source::All("assumed: a test".into())
}

pub fn workload(training: bool) -> impl Strategy<Value = Workload> {
    let pass = if training { Pass::Training } else { Pass::Forward };
    ((1..=8u64, 1..=3u32, 1..=8u64), (4..=7u32, 0..=6u32, 0..=2u32)).prop_map(
        move |((width, heads, layers), (seq, batch, micro))| {
            let (hidden, heads) = (64 * width, 1 << heads);
            DfmodelLayer {
                kind: Kind::DfmodelLayer,
                name: "small".into(),
                source: "assumed: a test".into(),
                hidden,
                heads,
                head_dim: hidden / heads,
                ffn: None,
                seq: 1 << seq,
                context: None,
                layers,
                word: Bytes(2.0),
                pass,
                global_batch: 1 << batch.max(micro),
                micro_batch: 1 << micro,
                heads_in_qk_backward: false,
            }
            .build()
            .checked()
            .expect("a layer is a graph")
        },
    )
}

const NETWORKS: [(Arrangement, &[u64]); 9] = [
    (Arrangement::SingleChip, &[]),
    (Arrangement::Ring, &[4]),
    (Arrangement::Switch, &[8]),
    (Arrangement::FullyConnected, &[4]),
    (Arrangement::Torus2d, &[2, 2]),
    (Arrangement::Torus2d, &[4, 2]),
    (Arrangement::Dragonfly, &[2, 4]),
    (Arrangement::Dgx1, &[4, 2]),
    (Arrangement::Dgx2, &[2, 2]),
];

/// Kernels whose tiles leave remainders, whose contractions may be divided, and which wait in short steps.
fn kernels(lanes: u32) -> Kernels {
    let tile = |rows, columns, rate, splits| Tile { rows, columns, rate: Fraction(rate), splits };
    Kernels {
        source: source(),
        peak: Table(vec![("fp16".into(), FlopRate(f64::from(lanes) * 1e10))]),
        units: u64::from(lanes) + 2,
        tiles: vec![tile(16, 24, 1.0, 4), tile(8, 8, 0.6, 1)],
        efficiency: Fraction(0.8),
        libraries: Table(Vec::new()),
        type_efficiency: Table(Vec::new()),
        served_efficiency: Table(Vec::new()),
        batched_efficiency: Fraction(0.4),
        vector: 8,
        unaligned: Fraction(0.2),
        fused_attention: Table(Vec::new()),
        fill: Seconds(1e-7),
        memory_efficiency: Fraction(0.7),
        launch: Seconds(2e-6),
        start: Seconds(1e-6),
        burst: lanes.is_multiple_of(2).then_some(Burst {
            exposed_operands: Share(0.0),
            exposed_result: Share(0.0),
            efficiency: Fraction(0.9),
            batched_efficiency: Fraction(0.5),
            memory_efficiency: Fraction(0.8),
            wait: Seconds(1e-9),
            tiles_at_once: 2,
            vector_rows: 0,
            unpacking: None,
        }),
    }
}

/// Of two systems in three pipelines fill and drain, told by a number that is drawn for something else: the other numbers stay what they are.
fn filling(number: u32) -> Charge {
    if number.is_multiple_of(3) { Charge::Ignored } else { Charge::Charged }
}

pub fn system(dfmodel: bool) -> impl Strategy<Value = System> {
    let style = prop_oneof![2 => Just(Style::Dataflow), 1 => Just(Style::KernelByKernel)];
    let efficiency =
        prop::sample::select(vec![Efficiency::Constant(Fraction(0.9)), Efficiency::LanesStages, Efficiency::Waves]);
    let chip = (style, efficiency, 3..=6u32, 3..=5u32, 14..=24u32, prop_oneof![Just(0.0), Just(5e-6)]);
    let capacity = prop_oneof![2 => Just(None), 3 => (20..=30u32).prop_map(|e| Some(Bytes(f64::from(e).exp2())))];
    let memory = (prop::sample::select(vec![1e9, 20e9, 300e9]), capacity);
    let network = (0..NETWORKS.len(), prop::sample::select(vec![1e9, 50e9]), prop_oneof![Just(0.0), Just(1e-6)]);
    (chip, memory, network).prop_map(
        move |((style, efficiency, cores, lanes, sram, launch), (bandwidth, capacity), net)| {
            let (topology, sizes) = NETWORKS[net.0];
            let link = Link {
                name: "link".into(),
                source: source(),
                bandwidth: Bandwidth(net.1),
                ring_links: 1 + u64::from(lanes % 2),
                sums: None,
                latency: Seconds(net.2),
                price: PricePerBandwidth(2.0),
                power: PowerPerBandwidth(0.05),
                idle_share: Share(if lanes % 2 == 0 { 1.0 } else { 0.3 }),
                energy_per_byte: None,
            };
            System {
                name: "small".into(),
                source: "assumed: a test".into(),
                chip: Ref(Chip {
                    name: "chip".into(),
                    source: source(),
                    style,
                    cores: 1 << cores,
                    lanes: 1 << lanes,
                    stages: 4,
                    frequency: Frequency(1e9),
                    vector_peak: None,
                    sram: Bytes(f64::from(sram).exp2()),
                    // A dataflow chip runs no kernels by waves.
                    efficiency: match efficiency {
                        Efficiency::Waves if style == Style::Dataflow => Efficiency::Constant(Fraction(0.5)),
                        way => way,
                    },
                    launch_overhead: Seconds(launch),
                    kernels: Some(kernels(lanes)),
                    area: None,
                    generic: None,
                    price: Price(100.0),
                    power: Power(10.0),
                    idle_share: Share(0.2),
                    energy_per_flop: (cores % 2 == 0).then_some(EnergyPerFlop(1e-12)),
                }),
                memory: Ref(Memory {
                    on_chip: false,
                    name: "memory".into(),
                    source: source(),
                    bandwidth: Bandwidth(bandwidth),
                    capacity,
                    stacks: None,
                    interface: None,
                    price: PricePerBandwidth(1.0),
                    capacity_price: None,
                    power: PowerPerBandwidth(0.1),
                    idle_share: Share(0.1),
                    energy_per_byte: (sram % 2 == 0).then_some(EnergyPerByte(50e-12)),
                }),
                offload: None,
                stack: None,
                software: None,
                network: Network {
                    topology,
                    dimensions: sizes
                        .iter()
                        .map(|size| Dimension {
                            size: *size,
                            link: Ref(link.clone()),
                            topology: None,
                            efficiency: Fraction(1.0),
                        })
                        .collect(),
                    switch: Some(Ref(SwitchPart {
                        name: "switch".into(),
                        source: source(),
                        price: PricePerBandwidth(24.0),
                        power: PowerPerBandwidth(0.05),
                    })),
                },
                chips: None,
                overlap: None,
                model: match dfmodel {
                    true => ModelOptions::dfmodel(),
                    false => ModelOptions { pipeline_filling: filling(cores + lanes), ..ModelOptions::flowspace() },
                },
            }
        },
    )
}

/// A third with DFModel's options.
pub fn any_system() -> impl Strategy<Value = System> {
    prop_oneof![2 => system(false), 1 => system(true)]
}

pub fn describe(w: &Workload, s: &System) -> String {
    format!(
        "{} kernels x {} layers, batch {}/{}; {} {:?} of {:?}, SRAM {}, DRAM {:?}",
        w.kernels.len(),
        w.repeat,
        w.global_batch,
        w.micro_batch,
        s.chip.0.style,
        s.chip.0.efficiency,
        s.network.topology,
        s.chip.0.sram,
        s.memory.0.capacity
    )
}

/// What a search came to.
enum Outcome {
    Infeasible,
    /// Stopped without a plan.
    Open,
    /// A checked plan, and whether it is proven.
    Plan(Box<Plan>, bool),
}

fn outcome(w: &Workload, s: &System, request: &Request) -> Result<Outcome, TestCaseError> {
    let fail = |e: String| TestCaseError::fail(format!("{}: {e}", describe(w, s)));
    let answer = match find(w, s, request) {
        Err(MapError::NoPlanYet { left: LeftOpen::Sets, .. }) => return Ok(Outcome::Open),
        answer => answer.map_err(|e| fail(e.to_string()))?,
    };
    match answer {
        Answer::Infeasible(_) => Ok(Outcome::Infeasible),
        Answer::Mapped(plan, record) => {
            flowspace::check::verify(&plan).map_err(|e| fail(e.to_string()))?;
            let proven = record.status == Status::Optimal;
            prop_assert!(proven || record.joint_nodes >= request.joint_nodes, "{}: {record:?}", describe(w, s));
            prop_assert!(record.bound <= record.value, "{} above {}", record.bound, record.value);
            prop_assert!(record.bound > 0.0 && record.value.is_finite() && record.reproducible);
            prop_assert_eq!(plan.figures.iteration_s(), record.value);
            Ok(Outcome::Plan(plan, proven))
        }
    }
}

fn solve(w: &Workload, s: &System, request: &Request) -> Result<Option<Box<Plan>>, TestCaseError> {
    match outcome(w, s, request)? {
        Outcome::Infeasible => Ok(None),
        Outcome::Plan(plan, true) => Ok(Some(plan)),
        Outcome::Plan(..) | Outcome::Open => Err(TestCaseError::fail(format!("not proven: {}", describe(w, s)))),
    }
}

/// What is short, by how much, and a remedy that says more than that.
fn complete(reason: &Infeasible) -> Result<(), String> {
    let known = ["sram", "dram", "chips", "layers", "batch", "heads", "sharding", "partitions", "degrees"];
    let text = reason.to_string();
    if !reason.resource.split('+').all(|one| known.contains(&one)) {
        Err("an unknown resource".into())
    } else if !(reason.needed.is_finite() && reason.available.is_finite() && reason.needed > 0.0) {
        Err("figures that are no figures".into())
    } else if reason.unit.is_empty() || reason.remedy.len() < 20 || !text.starts_with("infeasible") {
        Err("words are missing".into())
    } else if reason.unit == "bytes" && reason.needed <= reason.available {
        Err("it says short, but what is needed is there".into())
    } else {
        Ok(())
    }
}

fn request(engine: Engine) -> Request {
    let limits = Limits { nodes: Some(2000), ..Limits::default() };
    Request { engine, limits, joint_nodes: 100_000, ..Request::default() }
}

fn every_answer_is_checked(cases: u32, training: bool) {
    let tally = Cell::new((0, 0));
    let open = Cell::new(0);
    check(cases, &(workload(training), any_system()), |(w, s)| {
        // What it takes to prove a few graphs with hardly any room is not asked here.
        let few = |engine| Request { joint_nodes: 1_000, ..request(engine) };
        let auto = outcome(&w, &s, &few(Engine::Auto))?;
        let exact = outcome(&w, &s, &few(Engine::Exact))?;
        let (feasible, infeasible) = tally.get();
        tally.set(match auto {
            Outcome::Infeasible => (feasible, infeasible + 1),
            _ => (feasible + 1, infeasible),
        });
        match (auto, exact) {
            // What is short takes many searches: some of the cases are asked.
            (Outcome::Infeasible, Outcome::Infeasible) if infeasible % 8 == 0 => {
                let asked = Request { joint_nodes: 200, ..request(Engine::Exact) };
                match map(&w, &s, &asked).map_err(|e| TestCaseError::fail(e.to_string()))? {
                    Answer::Infeasible(reason) => complete(&reason)
                        .map_err(|e| TestCaseError::fail(format!("{}: {e}: {reason:?}", describe(&w, &s))))?,
                    Answer::Mapped(..) => prop_assert!(false, "a plan after all: {}", describe(&w, &s)),
                }
            }
            (Outcome::Infeasible, Outcome::Infeasible) => {}
            (Outcome::Plan(a, true), Outcome::Plan(b, true)) => {
                prop_assert!(
                    near(a.figures.iteration_s() / b.figures.iteration_s(), 1.0, 1e-6),
                    "{}",
                    describe(&w, &s)
                );
            }
            (Outcome::Infeasible, Outcome::Plan(..)) | (Outcome::Plan(..), Outcome::Infeasible) => {
                prop_assert!(false, "auto and exact disagree on feasibility: {}", describe(&w, &s));
            }
            _ => open.set(open.get() + 1),
        }
        Ok(())
    });
    let (cases, (feasible, infeasible)) = (super::drawn(cases), tally.get());
    println!("{feasible} feasible, {infeasible} not, {} stopped", open.get());
    assert!(open.get() * 10 <= feasible, "{} of {feasible} stopped", open.get());
    assert!(feasible * 10 > cases * 3 && infeasible > 0, "one-sided: {feasible} feasible, {infeasible} not");
}

#[test]
fn forward_plans_are_checked() {
    every_answer_is_checked(120, false);
}

#[test]
fn training_plans_are_checked() {
    every_answer_is_checked(16, true);
}

/// The MILP proves what the shortest path found (`map` itself stops when they differ by more than 1e-6).
#[test]
fn the_milp_agrees_with_the_shortest_path() {
    check(25, &(workload(false), any_system()), |(w, s)| {
        let path = solve(&w, &s, &request(Engine::Exact))?;
        let milp = solve(
            &w,
            &s,
            &Request { limits: Limits { nodes: Some(200), ..Limits::default() }, ..request(Engine::Milp) },
        )?;
        match (path, milp) {
            (None, None) => {}
            (Some(a), Some(b)) => {
                prop_assert!(
                    near(a.figures.iteration_s() / b.figures.iteration_s(), 1.0, 1e-6),
                    "{}",
                    describe(&w, &s)
                );
            }
            _ => prop_assert!(false, "the engines disagree on feasibility: {}", describe(&w, &s)),
        }
        Ok(())
    });
}

/// Seconds of an iteration; infinite where there is no plan.
fn seconds(w: &Workload, s: &System) -> Result<f64, TestCaseError> {
    seconds_at(w, s, None)
}

/// The same, at a tensor parallelism.
fn seconds_at(w: &Workload, s: &System, tp: Option<u64>) -> Result<f64, TestCaseError> {
    let mut request = Request { passes: Passes::Joint, ..request(Engine::Exact) };
    request.wanted.tp = tp;
    Ok(solve(w, s, &request)?.map_or(f64::INFINITY, |p| p.figures.iteration_s()))
}

/// Runs pairs of systems, all chips in one tensor-parallel group or all degrees free; returns how often the second was
/// slower, of how many that could be, and by how much at worst.
fn slower(
    cases: u32,
    one_group: bool,
    systems: impl Strategy<Value = System>,
    more: impl Fn(&mut System),
) -> (u32, u32, f64) {
    let tally = Cell::new((0, 0, 1.0_f64));
    check(cases, &(workload(false), systems), |(w, s)| {
        let mut larger = s.clone();
        more(&mut larger);
        let tp = one_group.then(|| s.chip_count());
        let before = seconds_at(&w, &s, tp)?;
        let after = seconds_at(&w, &larger, tp)?;
        let (bad, all, worst) = tally.get();
        if before.is_finite() {
            let ratio = after / before;
            tally.set((bad + u32::from(ratio > 1.0 + 1e-9), all + 1, worst.max(ratio)));
        }
        Ok(())
    });
    tally.get()
}

// All are searched jointly, DFModel's options included: what fits and takes so long on the smaller system fits the larger
// one and takes no longer there, so that a slower answer would be a fault of the search.

fn never_slower(what: &str, one_group: bool, change: impl Fn(&mut System)) {
    let found = slower(40, one_group, any_system(), change);
    println!("{what}: slower, of, at worst: {found:?}");
    assert_eq!(found.0, 0, "{what}: {found:?}");
}

#[test]
fn more_sram_is_never_slower() {
    never_slower("SRAM x 2", false, |s| s.chip.0.sram.0 *= 2.0);
}

#[test]
fn more_dram_is_never_slower() {
    never_slower("DRAM x 4", false, |s| {
        if let Some(capacity) = &mut s.memory.0.capacity {
            capacity.0 *= 4.0;
        }
    });
}

#[test]
fn more_dram_bandwidth_is_never_slower() {
    never_slower("DRAM bandwidth x 2", true, |s| s.memory.0.bandwidth.0 *= 2.0);
}

#[test]
fn more_link_bandwidth_is_never_slower() {
    never_slower("link bandwidth x 2", true, |s| {
        for d in &mut s.network.dimensions {
            d.link.0.bandwidth.0 *= 2.0;
        }
    });
}

#[test]
fn a_higher_clock_is_never_slower() {
    never_slower("frequency x 2", true, |s| s.chip.0.frequency.0 *= 2.0);
}

/// Twice the chips behind a switch, which any strategy may have: a forward pass whose batch is large enough takes no longer,
/// since twice the replicas is one of the answers.
#[test]
fn more_chips_of_a_free_degree_are_never_slower() {
    let chips = 2..=6u64;
    let tally = Cell::new((0, 0, 1.0_f64));
    check(60, &(workload(false), any_system(), chips), |(mut w, mut s, chips)| {
        w.global_batch = w.micro_batch * chips * 4;
        // What fits does so on more chips too; to see that nothing fits at all takes long.
        s.memory.0.capacity = None;
        s.network.topology = Arrangement::Switch;
        let link = s.network.dimensions.first().map(|d| d.link.clone());
        let Some(link) = link else { return Ok(()) };
        s.network.dimensions = vec![Dimension { size: chips, link, topology: None, efficiency: Fraction(1.0) }];
        let mut larger = s.clone();
        larger.network.dimensions[0].size = 2 * chips;
        let free = |s: &System| -> Result<f64, TestCaseError> {
            let mut request = Request { passes: Passes::Joint, ..request(Engine::Exact) };
            request.wanted.split = true;
            Ok(solve(&w, s, &request)?.map_or(f64::INFINITY, |p| p.figures.iteration_s()))
        };
        let (before, after) = (free(&s)?, free(&larger)?);
        let (bad, all, worst) = tally.get();
        if before.is_finite() {
            let ratio = after / before;
            tally.set((bad + u32::from(ratio > 1.0 + 1e-9), all + 1, worst.max(ratio)));
        }
        Ok(())
    });
    let found = tally.get();
    println!("chips x 2: slower, of, at worst: {found:?}");
    assert!(found.0 == 0 && found.1 > 20, "{found:?}");
}

/// Names mean nothing.
#[test]
fn renaming_kernels_changes_nothing() {
    check(40, &(workload(false), any_system()), |(w, s)| {
        let mut renamed = w.clone();
        for (i, k) in renamed.kernels.iter_mut().enumerate() {
            k.name = format!("zz{}", 1000 - i);
        }
        prop_assert_eq!(seconds(&w, &s)?, seconds(&renamed, &s)?);
        Ok(())
    });
}

/// Nor does the order in which independent kernels are written, where one chip leaves nothing to shard.
#[test]
fn the_order_of_independent_kernels_changes_nothing() {
    let one_chip = any_system().prop_map(|mut s| {
        s.network.topology = Arrangement::SingleChip;
        s.network.dimensions.clear();
        s
    });
    check(8, &(workload(true), one_chip), |(w, s)| {
        // Q, K and V read one tensor and none reads another's.
        let mut swapped = w.clone();
        let (q, v) = (w.kernel_index("Q").expect("a kernel"), w.kernel_index("V").expect("a kernel"));
        let swap = |k: usize| {
            if k == q {
                v
            } else if k == v {
                q
            } else {
                k
            }
        };
        swapped.kernels.swap(q, v);
        for k in &mut swapped.kernels {
            if let Some(of) = &mut k.weight_of {
                of.kernel = swap(of.kernel);
            }
        }
        for t in &mut swapped.tensors {
            t.producer = t.producer.map(swap);
            for u in &mut t.consumers {
                u.kernel = swap(u.kernel);
            }
        }
        let (a, b) = (seconds(&w, &s)?, seconds(&swapped, &s)?);
        prop_assert!(a == b || near(a / b, 1.0, 1e-9), "{a}, in another order {b}: {}", describe(&w, &s));
        Ok(())
    });
}

/// `count` kernels of one element each, in a chain or side by side.
fn graph(count: usize, chain: bool) -> Workload {
    use std::fmt::Write as _;
    let mut text = String::from(
        "kind: graph\nname: graph\nsource: 'assumed: a test'\nglobal_batch: 8\ninputs: [{ name: x, rows: 4, cols: 4 }]\nkernels:\n",
    );
    for i in 0..count {
        let input = if chain && i > 0 { format!("t{}", i - 1) } else { "x".into() };
        let _ = writeln!(text, "  - {{ name: k{i}, op: elementwise, m: 4, n: 4, inputs: [{input}], output: t{i} }}");
    }
    WorkloadSpec::build(&Node::parse("graph.yaml", &text).expect("YAML")).unwrap_or_else(|e| panic!("{e}"))
}

fn one_chip(style: Style) -> System {
    let found = Cell::new(None);
    check(1, &system(false), |s| {
        found.set(Some(s));
        Ok(())
    });
    let mut s = found.take().expect("one system");
    s.chip.0.style = style;
    s.chip.0.sram = Bytes(1e9);
    s.memory.0.capacity = None;
    s.network.topology = Arrangement::SingleChip;
    s.network.dimensions.clear();
    s
}

/// 130 kernels may run in 130 partitions.
#[test]
fn a_large_graph_may_have_a_bound_on_its_partitions() {
    let request = Request { max_partitions: Some(130), ..Request::default() };
    let answer = map(&graph(130, true), &one_chip(Style::Dataflow), &request).expect("an answer");
    assert!(matches!(answer, Answer::Mapped(..)), "{answer:?}");
}

/// Sixteen independent kernels: the last may run first.
#[test]
fn a_wide_graph_may_be_pinned_in_any_order() {
    let mut request = Request::default();
    request.pins.partition = vec![None; 16];
    request.pins.partition[15] = Some(0);
    request.pins.partition[0] = Some(1);
    let answer = map(&graph(16, false), &one_chip(Style::Dataflow), &request).expect("an answer");
    assert!(matches!(answer, Answer::Mapped(..)), "{answer:?}");
}

/// Kernel by kernel, a backward kernel that is written before a forward one runs after it.
#[test]
fn kernel_by_kernel_the_phases_are_ordered() {
    let mut w = graph(2, false);
    w.kernels[0].phase = Phase::BackwardInput;
    for style in [Style::Dataflow, Style::KernelByKernel] {
        let answer = find(&w, &one_chip(style), &Request::default()).expect("an answer");
        assert!(matches!(answer, Answer::Mapped(..)), "{style}: {answer:?}");
    }
}

/// A forward kernel that reads a backward one contradicts itself: a wrong input, or no plan; no internal error.
#[test]
fn a_forward_kernel_that_reads_a_backward_one_is_an_input_error() {
    let mut w = graph(2, true);
    w.kernels[0].phase = Phase::BackwardInput;
    let answer = find(&w, &one_chip(Style::Dataflow), &Request::default());
    assert!(!matches!(answer, Err(MapError::Disagreement { .. }) | Ok(Answer::Mapped(..))), "{answer:?}");
}

/// 2^50 samples a microbatch on 2^32 replicas are more than 2^50 samples: their product must not wrap around.
#[test]
fn samples_of_all_replicas_do_not_overflow() {
    let mut w = graph(2, true);
    w.global_batch = 1 << 50;
    w.micro_batch = 1 << 50;
    let mut s = one_chip(Style::Dataflow);
    s.network.topology = Arrangement::Switch;
    let link = Link {
        name: "link".into(),
        source: source(),
        bandwidth: Bandwidth(1e9),
        ring_links: 1,
        sums: None,
        latency: Seconds(0.0),
        price: PricePerBandwidth(2.0),
        power: PowerPerBandwidth(0.05),
        idle_share: Share(1.0),
        energy_per_byte: None,
    };
    s.network.dimensions =
        vec![Dimension { size: 1 << 32, link: Ref(link), topology: None, efficiency: Fraction(1.0) }];
    s.chip.0.sram = Bytes(1e30);
    let mut request = Request::default();
    request.wanted.dp = Some(1 << 32);
    let answer = find(&w, &s, &request).expect("an answer");
    assert!(matches!(answer, Answer::Infeasible(_)), "{answer:?}");
}

/// What `--write-model` writes for a chip that runs kernel by kernel has the plan's time as its optimum.
#[test]
fn the_written_model_of_a_kernel_by_kernel_chip_is_the_problem() {
    let (w, s) = (graph(3, true), one_chip(Style::KernelByKernel));
    let request = Request::default();
    let Answer::Mapped(plan, _) = find(&w, &s, &request).expect("an answer") else { panic!("feasible") };
    let model = winner_model(&w, &s, &plan, &request).expect("a model");
    let optimum = model.solve(&Limits::default(), None).expect("solved").record.objective;
    assert!(near(optimum / plan.figures.layer_s, 1.0, 1e-6), "{optimum} for {}", plan.figures.layer_s);
}
