//! Executions of language models behind either inner search: against trying everything, against the mapping of the whole model as one graph, against the
//! checker; and the checker against wrong figures.

use crate::scratch::Scratch;
use flowspace::check::execution::verify;
use flowspace::deadline::Deadline;
use flowspace::execution::block::{BlockKey, Inner};
use flowspace::execution::layer::Division;
use flowspace::execution::predict::predict_any;
use flowspace::execution::search::executions;
use flowspace::execution::{Machine, Pins, Recompute, Schedule};
use flowspace::mapping::executions::Executions;
use flowspace::mapping::free::Free;
use flowspace::mapping::request::{Answer, Request};
use flowspace::mapping::search::{Passes, Pins as GraphPins, map};
use flowspace::mapping::solver::Limits;
use flowspace::model::objective::Objective;
use flowspace::plan::DimensionUse;
use flowspace::spec::{Node, Reader, read::Share};
use flowspace::system::economics::Economics;
use flowspace::system::options::Charge;
use flowspace::system::{Software, System};
use flowspace::units::{FlopRate, PricePerEnergy};
use flowspace::workload::WorkloadSpec;
use flowspace::workload::language::{LanguageModel, ModelPass};
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn system(name: &str) -> System {
    let node = System::load(&root().join(format!("systems/{name}.yaml"))).unwrap();
    System::build(&node).unwrap()
}

pub fn shipped(name: &str) -> LanguageModel {
    let node = WorkloadSpec::load(&root().join(format!("workloads/language/{name}.yaml"))).unwrap();
    Reader::read(&node).unwrap()
}

fn model(fields: &str) -> LanguageModel {
    let text = format!(
        "{{kind: language_model, name: test, source: test, types: {{weights: fp16, activations: fp16, gradients: fp16}}, {fields}}}"
    );
    Reader::read(&Node::parse("model.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

pub fn small() -> LanguageModel {
    model(
        "layers: 4, hidden: 512, heads: 8, vocab: 1024, dropout: true, tied_embeddings: true, seq: 256, global_batch: 16",
    )
}

fn experts() -> LanguageModel {
    model(
        "layers: 3, hidden: 512, heads: 8, kv_heads: 4, gated: true, vocab: 1024, seq: 256, global_batch: 8, \
         experts: {count: 4, top_k: 2, ffn: 512, first_dense_layers: 1}",
    )
}

/// GPT-3 175B on 1,024 SN40L nearly fills the memory: the fastest mapping of its layers keeps some activations whole on every chip, so that the best execution does not fit by it. Without the
/// fastest mapping that keeps parts, a chip with a slower vector unit, whose fastest mapping is another one, trained 1.5 % faster.
#[test]
fn a_slower_chip_is_not_faster_where_memory_is_short() {
    let scratch = Scratch::new("execution_keeps_parts");
    let parts = root().join("systems").display().to_string();
    let seconds = |filling: &str, vector: Option<FlopRate>| {
        scratch.write(
            "s.yaml",
            &format!(
                "from: {parts}/clusters/selene-2022.yaml\nname: nodes\nchip: {parts}/chips/sn40l.yaml\n\
                 memory: {parts}/memories/sn40l-hbm.yaml\nstack: {parts}/stacks/generic-dataflow.yaml\nsoftware: free\n\
                 network:\n  topology: custom\n  dimensions:\n\
                 \x20   - {{size: 8, topology: fully_connected, link: {parts}/links/sn40l-node.yaml}}\n\
                 \x20   - {{size: 128, topology: switch, link: {parts}/links/infiniband-ndr.yaml, efficiency: 0.8}}\nchips: 1024\n\
                 model: {{ pipeline_filling: {filling} }}\n"
            ),
        );
        let node = System::load(&PathBuf::from(scratch.file("s.yaml"))).unwrap();
        let mut system = System::build(&node).unwrap_or_else(|e| panic!("{e}"));
        system.chip.0.vector_peak = vector.or(system.chip.0.vector_peak);
        let mut model = shipped("gpt3-175b");
        let brain = flowspace::workload::language::DataType::Bf16;
        (model.types.weights, model.types.activations, model.types.gradients) = (brain, brain, brain);
        let executions = Executions::new(&system, &model, &Limits::default()).unwrap();
        let pins = Pins { tp: Some(16), pp: Some(1), dp: Some(64), ..Pins::default() };
        let found = executions.search(&pins, Deadline::never()).unwrap();
        (found.gap(), found.best.expect("an execution fits").time.total)
    };
    let [(stated, slower), (filled, slower_filled)] =
        ["ignored", "charged"].map(|filling| (seconds(filling, None), seconds(filling, Some(FlopRate(5e12)))));
    // Groups of 16 cross boxes of eight, on the links of replicas: another mapping is taken to send nothing there.
    assert!(stated.0 < 0.0025 && slower.0 < 0.0025, "{stated:?} {slower:?}");
    assert!(stated.1 < slower.1, "{stated:?} {slower:?}");
    assert!(filled.1 < slower_filled.1, "{filled:?} {slower_filled:?}");
    assert!(stated.1 <= filled.1 && slower.1 <= slower_filled.1);
}

/// On rings, on a crossbar, with memory for everything and for little: the search finds what trying every execution finds, and each that it tries the checker
/// derives again.
#[test]
fn the_free_search_is_brute_force() {
    let gib = 1024f64.powi(3);
    // Where pipelines fill, a cut's shardings take half a minute to be searched to their end: of four chips, and of the one that shares nothing.
    for (name, capacity, tp) in [
        ("sn10-8-torus-2d", None, Some(4)),
        ("sn10-8-torus-2d", None, None),
        ("sn10-8-torus-2d", Some(0.05 * gib), None),
        ("sn40l-16-fully-connected", Some(0.03 * gib), None),
        ("wse-2-single", None, Some(1)),
    ] {
        let mut system = system(name);
        if tp.is_none() {
            system.model.pipeline_filling = Charge::Ignored;
        }
        if let Some(bytes) = capacity {
            system.memory.0.capacity.as_mut().unwrap().0 = bytes;
        }
        // Experts where the memory is large: what is short takes long.
        let both = capacity.is_none() && tp != Some(4);
        for model in [small(), experts()].into_iter().take(if both { 2 } else { 1 }) {
            let what = format!("{} on {name} {capacity:?} {tp:?}", model.name);
            let all = Executions::new(&system, &model, &Limits::default()).unwrap();
            // Where shardings are searched, one size of a microbatch and one recomputation: each cut of them is mapped as well as for a given execution.
            let divided = name != "wse-2-single";
            let recompute = divided.then_some(Recompute::Selective);
            // Tokens among replicas where there are no experts among them.
            let cp = (divided && model.experts.is_some()).then_some(1);
            let pins = Pins { micro_batch: divided.then_some(2), recompute, cp, tp, ..Pins::default() };
            let found = all.search(&pins, Deadline::never()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let listed = executions(&all.machine, &model, &pins);
            let mine = listed.iter().filter(|e| !e.sequence_parallel && !e.overlap_tp);
            let times = mine.filter_map(|e| all.predict(e, Deadline::never()).ok()).map(|(p, _)| p.time.total);
            let least = times.fold(f64::INFINITY, f64::min);
            match &found.best {
                Some(best) => {
                    assert!(best.memory.fits() && found.plan.is_some(), "{what}");
                    assert!(found.bound <= least, "{what}: {} above {least}", found.bound);
                    // Where the memory is short, what a faster mapping might keep is bounded loosely.
                    let most = match capacity {
                        _ if !divided => 1e-9,
                        None => 0.07,
                        Some(_) => 0.25,
                    };
                    assert!(found.gap() <= most, "{what}: {}", found.gap());
                    assert!(best.time.total <= least * (1.0 + found.gap()), "{what}: {} {least}", best.time.total);
                }
                None => assert!(least.is_infinite() && found.least.is_some(), "{what}: {least}"),
            }
        }
    }
}

/// The passes of a cut are those of the model mapped as one graph with that cut, and no bound is above them.
#[test]
fn passes_are_those_of_the_graph() {
    let system = system("sn10-8-torus-2d");
    let uses = vec![DimensionUse { tp: 4, ..DimensionUse::NONE }, DimensionUse { dp: 2, ..DimensionUse::NONE }];
    for name in ["gpt3-6.7b", "llama3-8b", "mixtral-8x7b"] {
        let model = shipped(name);
        let free = Free::new(&system, &model, &Limits::default()).unwrap();
        let mut roomy = system.clone();
        roomy.memory.0.capacity = None;
        let graph = model.chain().unwrap().checked().unwrap();
        let request = Request {
            pins: GraphPins { uses: Some(uses.clone()), ..GraphPins::default() },
            passes: Passes::Joint,
            joint_nodes: 16,
            ..Request::default()
        };
        let Answer::Mapped(plan, _) = map(&graph, &roomy, &request).unwrap() else { panic!("{name}: no plan") };
        let key = |recompute| BlockKey { division: division(4, 1, 1), recompute, overlap_tp: false };
        let best = |recompute| {
            let key = key(recompute);
            let bound = free.bound(&key);
            // 16 sets.
            let best = free.best(&key, &bound, 1, Deadline::never()).unwrap().remove(0).blocks;
            for (b, p) in [(bound.plain, best.plain), (bound.experts, best.experts), (bound.head, best.head)] {
                assert!(b.forward_pass <= p.forward_pass && b.backward_pass <= p.backward_pass, "{name}: {b:?} {p:?}");
                assert!(b.kept <= p.kept * (1.0 + 1e-12) && b.flop <= p.flop * (1.0 + 1e-12), "{name}: {b:?} {p:?}");
            }
            best
        };
        let none = best(Recompute::None);
        for (block, _, seconds) in plan.blocks() {
            let pass = match block.as_str() {
                "embedding" => none.embedding,
                "layers" => none.plain,
                "head" => none.head,
                _ => none.experts,
            };
            assert!((pass.total() - seconds).abs() <= 1e-9 * seconds, "{name}: {block}: {} {seconds}", pass.total());
        }
        // What is computed again is work, and keeps less.
        let (selective, full) = (best(Recompute::Selective), best(Recompute::Full));
        let layer = |b: &flowspace::execution::block::Blocks| if name == "mixtral-8x7b" { b.experts } else { b.plain };
        assert!(layer(&full).kept < layer(&selective).kept && layer(&selective).kept < layer(&none).kept, "{name}");
        assert!(layer(&full).flop > layer(&selective).flop && layer(&selective).flop > layer(&none).flop, "{name}");
    }
}

/// Of every third trained model, in cuts of all kinds on chips with little and with much memory bandwidth: no bound is above what the mapping takes, in time, kept bytes, or what energy counts.
#[test]
fn no_bound_is_above_its_mapping() {
    let mut seen = 0;
    for name in ["sn30-1024-torus-2d", "wse-2-single"] {
        let system = system(name);
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(root().join("workloads/language")).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths.into_iter().step_by(3) {
            let Ok(WorkloadSpec::Language(model)) = Reader::read::<WorkloadSpec>(&WorkloadSpec::load(&path).unwrap())
            else {
                continue;
            };
            let Ok(free) = Free::new(&system, &model, &Limits::default()) else { continue };
            for (i, (tp, cp, micro_batch)) in [(1, 1, 1), (2, 2, 2), (8, 1, 1), (1, 8, 1)].into_iter().enumerate() {
                let whole = model.seq % cp == 0 && model.heads % tp == 0 && tp <= system.chip_count();
                if model.pass != ModelPass::Training || !whole || model.layers > 100 {
                    continue;
                }
                let recompute = Recompute::ALL[(i + model.layers as usize) % 3];
                let division = division(tp, cp, micro_batch);
                let key = BlockKey { division, recompute, overlap_tp: false };
                let bound = free.bound(&key);
                for best in free.best(&key, &bound, 0, Deadline::after(Some(20.0))).unwrap() {
                    assert!(
                        bound.hand_over <= best.blocks.hand_over * (1.0 + 1e-12),
                        "{} on {name}, {key:?}",
                        model.name
                    );
                    for (b, p) in [
                        (bound.embedding, best.blocks.embedding),
                        (bound.plain, best.blocks.plain),
                        (bound.experts, best.blocks.experts),
                        (bound.head, best.blocks.head),
                    ] {
                        let parts = [
                            (b.forward_pass, p.forward_pass),
                            (b.backward_pass, p.backward_pass),
                            (b.kept, p.kept),
                            (b.arithmetic, p.arithmetic),
                            (b.flop, p.flop),
                            (b.dram_bytes, p.dram_bytes),
                        ];
                        let below = parts.iter().all(|(bound, found)| *bound <= found * (1.0 + 1e-9));
                        assert!(below, "{} on {name}, {key:?}: {parts:?}", model.name);
                    }
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 80, "{seen}");
}

/// Microbatches divided among tensor- and context-parallel chips that nobody is beside.
fn division(tp: u64, cp: u64, micro_batch: u64) -> Division {
    Division { tp, cp, ep: 1, chips: tp * cp, micro_batch, sequence_parallel: false }
}

/// Context parallelism on chips that fuse: a layer gathers keys and values forward and once more backward and adds up both gradients, six times 512 rows of the whole
/// sample's 256 tokens; each replica has its part of the FLOP, and of what is kept but no keys and values of others.
#[test]
fn replicas_that_share_tokens_gather_keys_and_values() {
    let system = system("sn10-8-torus-2d");
    let model = small();
    let free = Free::new(&system, &model, &Limits::default()).unwrap();
    let all = Executions::new(&system, &model, &Limits::default()).unwrap();
    let best = |tp: u64, cp: u64, micro_batch: u64, recompute| {
        let division = division(tp, cp, micro_batch);
        let key = BlockKey { division, recompute, overlap_tp: false };
        let bound = free.bound(&key);
        // 128 sets.
        let best = free.best(&key, &bound, 2, Deadline::never()).unwrap().remove(0).blocks;
        let (b, p) = (bound.plain, best.plain);
        let passes = [(b.forward_pass, p.forward_pass), (b.backward_pass, p.backward_pass), (b.kept, p.kept)];
        let energy = [(b.arithmetic, p.arithmetic), (b.flop, p.flop), (b.dram_bytes, p.dram_bytes)];
        assert!(passes.iter().chain(&energy).all(|(bound, found)| *bound <= found * (1.0 + 1e-12)), "{b:?} {p:?}");
        best
    };
    for recompute in Recompute::ALL {
        let (alone, shared) = (best(1, 1, 2, *recompute), best(1, 4, 2, *recompute));
        let bytes = 2.0 * 512.0 * 256.0 * 2.0;
        let once = all
            .machine
            .line(flowspace::execution::machine::Traffic::Gather, flowspace::execution::machine::Peers::alone(4, 1))
            .at(bytes);
        let found = shared.plain.exposed.cp;
        assert!((found - 6.0 * once).abs() <= 1e-12 * found && once > 0.0, "{recompute}: {found} {once}");
        assert!((4.0 * shared.plain.flop - alone.plain.flop).abs() <= 1e-12 * alone.plain.flop, "{recompute}");
        assert!((4.0 * shared.head.flop - alone.head.flop).abs() <= 1e-12 * alone.head.flop, "{recompute}");
        assert!((4.0 * shared.plain.kept - alone.plain.kept).abs() <= 1e-12 * alone.plain.kept, "{recompute}");
        assert!((4.0 * shared.hand_over - alone.hand_over).abs() <= 1e-12 * alone.hand_over, "{recompute}");
        // Chips of a tensor-parallel group have at least their part of the whole each.
        let divided = best(2, 4, 2, *recompute).plain.exposed.cp;
        let least = 6.0
            * all
                .machine
                .line(flowspace::execution::machine::Traffic::Gather, flowspace::execution::machine::Peers::alone(4, 2))
                .at(bytes / 2.0);
        assert!(divided >= least * (1.0 - 1e-12), "{recompute}: {divided} {least}");
    }
}

/// Every execution of small models on a machine with two tiers of memory, by its stack's policy: time and memory as the checker derives them.
#[test]
fn the_checker_derives_every_execution_again() {
    let system = system("clusters/selene-2022");
    let mut machine = Machine::new(&system).unwrap();
    machine.second_tier = Some((20e9, None));
    (machine.stack.overlap_dp, machine.stack.overlap_tp) = (true, true);
    for model in [small(), experts()] {
        for chips in [1, 2, 8, 12] {
            let pins = Pins { chips: Some(chips), ..Pins::default() };
            let all = executions(&machine, &model, &pins);
            for e in all.iter().step_by(all.len() / 3000 + 1) {
                let p = predict_any(&machine, &model, e).unwrap();
                verify((&system, &machine), &model, &p, None).unwrap_or_else(|error| panic!("{e:?}: {error}"));
            }
        }
    }
}

/// Figures that are wrong by a millionth are found: of the iteration, of the memory, of a pass.
#[test]
fn the_checker_refuses_wrong_figures() {
    let (system, model) = (system("sn10-8-torus-2d"), small());
    let all = Executions::new(&system, &model, &Limits::default()).unwrap();
    let pins = Pins {
        tp: Some(4),
        dp: Some(1),
        schedule: Some(Schedule::ZeroBubble),
        micro_batch: Some(1),
        ..Pins::default()
    };
    let found = all.search(&pins, Deadline::never()).unwrap();
    let (right, plan) = (found.best.unwrap(), found.plan.unwrap());
    let says = |edit: &dyn Fn(&mut flowspace::execution::Prediction)| {
        let mut wrong = right.clone();
        edit(&mut wrong);
        verify((&system, &all.machine), &model, &wrong, Some(&plan)).map_err(|e| e.to_string())
    };
    assert_eq!(says(&|_| {}), Ok(()));
    let of = |what: &str, edit: &dyn Fn(&mut flowspace::execution::Prediction)| {
        let error = says(edit).unwrap_err();
        assert!(error.contains(what), "{error}");
    };
    of("iteration_s", &|p| p.time.total *= 1.000001);
    of("iteration_s", &|p| p.blocks.plain.backward_pass *= 1.000001);
    of("parts of the iteration", &|p| p.time.bubble += 1e-6 * p.time.total);
    of("bytes of the fullest stage", &|p| p.memory.device.working += 1e-6 * p.memory.device.total());
    of("bytes in the second tier", &|p| p.memory.second_tier += 1.0);
    of("energy of chips", &|p| p.energy.used.chips *= 1.001);
    of("energy of memories", &|p| p.energy.used.memory *= 1.001);
    of("energy of links", &|p| p.energy.idle.links *= 1.000001);
    // A pass that is wrong, with an iteration that follows from it.
    let mut wrong = right.clone();
    wrong.blocks.plain.forward_pass *= 0.9;
    let again = flowspace::execution::predict::of_blocks(&all.machine, &model, &right.execution, wrong.blocks).unwrap();
    let error = verify((&system, &all.machine), &model, &again, Some(&plan)).unwrap_err().to_string();
    assert!(error.contains("parts of the iteration") || error.contains("layers: forward_pass"), "{error}");
}

/// Energy and cost: the search finds the least of all executions, of software and of what is possible on chips that fuse; on chips that run kernel by kernel,
/// where a block has several mappings, nothing above it.
#[test]
fn energy_and_cost_are_brute_force() {
    let economics = Economics { electricity: PricePerEnergy(1e-4), ..Economics::default() };
    for (name, software) in
        [("sn10-8-torus-2d", Software::Free), ("h100-dgx-8", Software::Generic), ("h100-dgx-8", Software::Free)]
    {
        let mut system = System { software: Some(software), ..system(name) };
        for d in &mut system.network.dimensions {
            d.link.0.idle_share = Share(0.1);
        }
        for model in [small(), experts()] {
            let all = Executions::new(&system, &model, &Limits::default()).unwrap();
            let graphs = name.starts_with("sn");
            let recompute = graphs.then_some(Recompute::None);
            // Tokens among replicas and other groups: above, of the time. A group of four takes seconds to be searched to its end, one of two half a minute.
            let (tp, cp) = (graphs.then_some(4), graphs.then_some(1));
            let pins = Pins { micro_batch: graphs.then_some(2), recompute, tp, cp, ..Pins::default() };
            let listed = executions(&all.machine, &model, &pins);
            let mine = listed.iter().filter(|e| !graphs || !e.sequence_parallel && !e.overlap_tp);
            let predicted: Vec<_> =
                mine.filter_map(|e| all.predict(e, Deadline::never()).ok()).map(|(p, _)| p).collect();
            let price = flowspace::system::price::cost(&system).total();
            for objective in [Objective::Time, Objective::Energy, Objective::Cost] {
                let what = format!("{} on {name}, {software}, {objective}", model.name);
                let all = Executions::new(&system, &model, &Limits::default()).unwrap();
                // A gap is allowed below; fewer sets than the default close it as far.
                let all = all.aimed(objective, &economics).unwrap().with_sets(1_000);
                let found = all.search(&pins, Deadline::never()).unwrap();
                let value = |p: &flowspace::execution::Prediction| match objective {
                    Objective::Time => p.time.total,
                    Objective::Energy => p.energy.total(),
                    Objective::Cost => economics.iteration(price, p.time.total, p.energy.total()).total(),
                };
                let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
                assert!(close(value(found.best.as_ref().unwrap()), found.value), "{what}");
                // Shardings of cuts that are not closed leave a little.
                let gap = found.gap();
                assert!(gap <= if graphs { 0.07 } else { 1e-9 }, "{what}: {gap}");
                let least = predicted.iter().map(value).fold(f64::INFINITY, f64::min);
                // Of several mappings of a block a prediction has the fastest.
                match software == Software::Free {
                    true => assert!(found.value <= least * (1.0 + gap + 1e-9), "{what}: {} {least}", found.value),
                    false => assert!(close(found.value, least), "{what}: {} {least}", found.value),
                }
                assert!(!graphs || objective != Objective::Time || found.bound <= least, "{what}");
            }
        }
    }
}

/// What the softwares are, and what is refused by name.
#[test]
fn software_says_what_an_answer_stands_for() {
    let model = small();
    let of = |name: &str, software: Option<Software>| {
        let system = System { software, ..system(name) };
        Executions::new(&system, &model, &Limits::default()).map(|e| e.machine.stack.name.clone())
    };
    assert_eq!(of("clusters/selene-2022", None).unwrap(), "Megatron-LM 2022");
    assert_eq!(of("clusters/selene-2022", Some(Software::Ideal)).unwrap(), "ideal");
    assert_eq!(of("clusters/selene-2022", Some(Software::Free)).unwrap(), "free");
    assert!(of("h100-dgx-8", Some(Software::Stack)).unwrap_err().contains("names none"));
    assert!(of("sn30-single", Some(Software::Ideal)).unwrap_err().contains("kernel_by_kernel"));
    let system = system("sn10-8-torus-2d");
    let all = Executions::new(&system, &model, &Limits::default()).unwrap();
    let says = |pins: Pins| all.search(&pins, Deadline::never()).unwrap_err();
    let parallel = says(Pins { sequence_parallel: Some(true), ..Pins::default() });
    assert!(parallel.contains("sequence_parallel: the free search has no such decision"), "{parallel}");
    assert!(says(Pins { overlap_tp: Some(true), ..Pins::default() }).contains("overlap_tp"));
    // Rings of four and two chips: two of tensor parallelism are a line of one, and gather half a tensor over a link where four gather three quarters over two.
    let line = all.predict(
        &flowspace::execution::Execution {
            tp: 2,
            dp: 4,
            ..executions(&all.machine, &model, &Pins::default())[0].clone()
        },
        Deadline::never(),
    );
    assert!(line.unwrap().0.time.tp > 0.0);
}
