//! `software: free` on chips that run kernel by kernel: the mapping found is that of brute force, and never slower than what software does.

use flowspace::deadline::Deadline;
use flowspace::execution::activation::AttentionKernel;
use flowspace::execution::block::{BlockKey, BlockPass, Blocks};
use flowspace::execution::inference::search::{Goal, Wanted};
use flowspace::execution::inference::{self, Server};
use flowspace::execution::layer::{Kernels, Sums};
use flowspace::execution::mapping::{Branch, Core, Fusions, LayerMapping, branches};
use flowspace::execution::policy::layer_pass;
use flowspace::execution::predict::of_blocks;
use flowspace::execution::search::{Aim, executions};
use flowspace::execution::{Machine, Pins, Prediction, Recompute, Schedule};
use flowspace::mapping::difference::difference;
use flowspace::mapping::executions::Executions;
use flowspace::mapping::solver::Limits;
use flowspace::model::objective::Objective;
use flowspace::spec::read::{Ref, Share};
use flowspace::spec::{Loader, Node, Reader, catalogue};
use flowspace::system::economics::Economics;
use flowspace::system::{Software, Stack, System};
use flowspace::units::{EnergyPerFlop, PricePerEnergy};
use flowspace::workload::WorkloadSpec;
use flowspace::workload::language::{LanguageModel, ModelPass};
use std::collections::HashMap;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn system(name: &str) -> System {
    let node = System::load(&root().join(format!("systems/{name}.yaml"))).unwrap();
    System::build(&node).unwrap()
}

fn shipped(name: &str) -> LanguageModel {
    let node = WorkloadSpec::load(&root().join(format!("workloads/language/{name}.yaml"))).unwrap();
    Reader::read(&node).unwrap()
}

fn model(fields: &str) -> LanguageModel {
    let text = format!(
        "{{kind: language_model, name: test, source: test, types: {{weights: bf16, activations: bf16}}, {fields}}}"
    );
    Reader::read(&Node::parse("model.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

/// Every mapping of a layer, also those whose fusions are left out.
fn mappings(machine: &Machine, model: &LanguageModel, key: &BlockKey, with_experts: bool) -> Vec<LayerMapping> {
    let kernels = (0..machine.attention_kernels.len()).map(Core::Kernel);
    let cores: Vec<Core> = kernels.chain([Core::Unfused]).collect();
    let mut out = Vec::new();
    for bits in 0..16u8 {
        let has = |bit: u8| bits & (1 << bit) != 0;
        let fused = Fusions { reorder: has(0), function: has(1), sums: has(2), accumulation: has(3) };
        for core in &cores {
            for attention in branches(model, &key.division, true, with_experts) {
                for perceptron in branches(model, &key.division, false, with_experts) {
                    out.push(LayerMapping { attention: *attention, perceptron: *perceptron, core: *core, fused });
                }
            }
        }
    }
    out
}

/// Distinct passes of a kind of layer.
fn passes(machine: &Machine, model: &LanguageModel, key: &BlockKey, with_experts: bool) -> Vec<BlockPass> {
    let peak = machine.peak(model).unwrap();
    let mut seen = HashMap::new();
    for mapping in mappings(machine, model, key, with_experts) {
        let list = Kernels::new(machine, model, key.division, peak).by(&mapping).layer(with_experts);
        let pass = layer_pass(machine, model, key, with_experts, &mapping, &Sums::of(&list));
        let timed = [pass.forward_pass, pass.backward_pass, pass.weight, pass.kept, pass.working];
        let used = [pass.flop, pass.arithmetic, pass.dram_bytes, pass.exposed.joules];
        seen.entry((timed.map(f64::to_bits), used.map(f64::to_bits))).or_insert(pass);
    }
    seen.into_values().collect()
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Every execution with every mapping of its layers, fusions taken or not, against the search: with ample memory and with little, of least time, energy and cost.
/// Links that draw more in use than idle, and dear electricity: or the fastest would be the best of all.
#[test]
fn the_search_is_brute_force() {
    let gated = "layers: 2, hidden: 1024, heads: 8, kv_heads: 2, gated: true, norm: rms, position: rotary, vocab: 2048, seq: 4096, global_batch: 8";
    let plain = "layers: 2, hidden: 1024, heads: 8, vocab: 2048, dropout: true, seq: 512, global_batch: 8";
    let routed = "layers: 2, hidden: 512, heads: 8, gated: true, vocab: 1024, seq: 512, global_batch: 8, \
                  experts: {count: 4, top_k: 2, ffn: 512}";
    let encoder = "layers: 2, hidden: 1024, heads: 16, vocab: 2048, causal: false, seq: 2048, global_batch: 8";
    let mib = 1024f64.powi(2);
    let (mut gathers, mut frugal, mut unfused) = (0, 0, 0);
    let economics = Economics { electricity: PricePerEnergy(1e-4), ..Economics::default() };
    let objectives = [Objective::Time, Objective::Energy, Objective::Cost];
    // Joules a FLOP so many that computing scores again, as fused cores do, is not worth the traffic that it saves.
    let dear = Some(EnergyPerFlop(1e-10));
    for (fields, capacity, tp, flop_j) in [
        (gated, None, None, None),
        (gated, Some(900.0 * mib), None, None),
        // Many tokens of few channels, on chips that have to share them.
        (gated, None, Some(4), None),
        (plain, None, None, None),
        (plain, Some(250.0 * mib), None, None),
        (plain, None, Some(4), None),
        (routed, Some(200.0 * mib), None, None),
        (plain, None, Some(4), dear),
        (gated, None, Some(2), dear),
        (encoder, None, None, dear),
    ] {
        let model = model(fields);
        let mut system = System { software: Some(Software::Free), ..system("h100-dgx-8") };
        for d in &mut system.network.dimensions {
            d.link.0.idle_share = Share(0.1);
        }
        system.chip.0.energy_per_flop = flop_j;
        if let Some(bytes) = capacity {
            system.memory.0.capacity.as_mut().unwrap().0 = bytes;
        }
        let all = Executions::new(&system, &model, &Limits::default()).unwrap();
        let pins = Pins { chips: Some(4), tp, ..Pins::default() };
        let price = flowspace::system::price::cost(&system).total();
        let value = |p: &Prediction, objective| match objective {
            Objective::Time => p.time.total,
            Objective::Energy => p.energy.total(),
            Objective::Cost => economics.iteration(price, p.time.total, p.energy.total()).total(),
        };
        let mut known: HashMap<BlockKey, (Vec<BlockPass>, Vec<BlockPass>)> = HashMap::new();
        let (mut least, mut covered) = ([f64::INFINITY; 3], 0);
        for e in executions(&all.machine, &model, &pins) {
            covered += 1;
            let key = BlockKey::of(&e);
            let (dense, experts) = known.entry(key).or_insert_with(|| {
                let of = |there: bool, with| {
                    if there { passes(&all.machine, &model, &key, with) } else { vec![BlockPass::default()] }
                };
                (of(model.dense_layers() > 0, false), of(model.expert_layers() > 0, true))
            });
            let kernels = || Kernels::new(&all.machine, &model, key.division, all.machine.peak(&model).unwrap());
            let ends = [Sums::of(&kernels().embedding()), Sums::of(&kernels().head())];
            let ends = Blocks::of_ends(&all.machine, &model, &key, [&ends[0], &ends[1]]);
            for plain in dense.iter() {
                for experts in experts.iter() {
                    let blocks = Blocks { plain: *plain, experts: *experts, ..ends };
                    let p = of_blocks(&all.machine, &model, &e, blocks).unwrap();
                    if p.memory.fits() {
                        least = [0, 1, 2].map(|i| least[i].min(value(&p, objectives[i])));
                    }
                }
            }
        }
        let mut mappings = Vec::new();
        for (objective, least) in objectives.into_iter().zip(least) {
            let all = Executions::new(&system, &model, &Limits::default()).unwrap();
            let found = all.aimed(objective, &economics).unwrap().search(&pins, Deadline::never()).unwrap();
            assert_eq!(covered, found.covered);
            let what = format!("{fields} {capacity:?} {objective}");
            let best = found.best.as_ref().unwrap_or_else(|| panic!("{what}: {:?}", found.least));
            assert!(same(value(best, objective), least), "{what}: {} for {least}", value(best, objective));
            assert!(found.gap() < 1e-9 && best.memory.fits());
            mappings.push((best.blocks.plain.mapping, best.blocks.experts.mapping));
        }
        gathers += usize::from(mappings[0].0.is_some_and(|m| !m.divides_weights()));
        frugal += usize::from(mappings[1] != mappings[0]);
        unfused += usize::from(mappings[1].0.is_some_and(|m| m.core == Core::Unfused));
    }
    println!(
        "{gathers} divide tokens, {frugal} of least energy are mapped in another way, {unfused} with scores in memory"
    );
    // Or nothing here would tell whether tokens are ever divided.
    assert!(gathers > 0, "no best mapping divides tokens");
    assert!(frugal > 1 && unfused > 0, "the fastest mapping is always the one of least energy");
}

/// What a stack, generic and ideal software do is among the mappings: nothing possible is slower, at every execution and at the best.
#[test]
fn nothing_possible_is_slower_than_software() {
    let pinned = |tp, pp, dp, micro_batch| Pins {
        tp: Some(tp),
        pp: Some(pp),
        dp: Some(dp),
        micro_batch: Some(micro_batch),
        ..Pins::default()
    };
    for (name, workload, pins) in [
        ("clusters/selene-2022", "korthikanti-22b", Pins { chips: Some(8), ..pinned(8, 1, 1, 4) }),
        ("clusters/selene-2022", "gpt3-175b", Pins { chips: Some(64), ..pinned(8, 8, 1, 1) }),
        ("clusters/selene-2022", "mt-nlg-530b", Pins { chips: Some(280), ..pinned(8, 35, 1, 1) }),
        ("clusters/selene-2022", "megatron-1008b", Pins { chips: Some(512), ..pinned(8, 64, 1, 1) }),
        ("h100-dgx-1024", "llama3-8b", Pins { chips: Some(8), ..Pins::default() }),
        ("h100-dgx-1024", "llama3-70b", Pins { chips: Some(64), ..Pins::default() }),
        ("h100-dgx-1024", "mixtral-8x7b", Pins { chips: Some(64), ..Pins::default() }),
    ] {
        let workload = if workload == "korthikanti-22b" {
            LanguageModel { layers: 48, hidden: 6144, heads: 64, global_batch: 4, ..shipped("gpt3-175b") }
        } else {
            let model = shipped(workload);
            let batch = pins.dp.map_or(model.global_batch, |dp| dp * 64 * pins.pp.unwrap_or(1));
            LanguageModel { global_batch: if pins.dp.is_some() { batch } else { model.global_batch }, ..model }
        };
        let of = |software| {
            let system = System { software: Some(software), ..system(name) };
            let all = Executions::new(&system, &workload, &Limits::default()).ok()?;
            let found = all.search(&pins, Deadline::never()).unwrap();
            found.best.map(|best| (all.machine.clone(), best))
        };
        let (_, possible) = of(Software::Free).unwrap_or_else(|| panic!("{name} {}: nothing possible", workload.name));
        for software in [Software::Stack, Software::Generic, Software::Ideal] {
            let Some((_, best)) = of(software) else { continue };
            let what = format!("{} on {name}: {software}", workload.name);
            assert!(
                possible.time.total <= best.time.total * (1.0 + 1e-9),
                "{what}: {} {}",
                possible.time.total,
                best.time.total
            );
            let free = System { software: Some(Software::Free), ..system(name) };
            let all = Executions::new(&free, &workload, &Limits::default()).unwrap();
            for schedule in [best.execution.schedule, Schedule::ZeroBubble] {
                let plain = schedule == Schedule::ZeroBubble;
                let e = flowspace::execution::Execution {
                    schedule,
                    chunks: if plain { 1 } else { best.execution.chunks },
                    ..best.execution.clone()
                };
                let by = System { software: Some(software), ..system(name) };
                let theirs =
                    Executions::new(&by, &workload, &Limits::default()).unwrap().predict(&e, Deadline::never());
                let Ok((theirs, _)) = theirs else { continue };
                let (ours, _) = all.predict(&e, Deadline::never()).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(
                    ours.time.total <= theirs.time.total * (1.0 + 1e-9),
                    "{what} {schedule}: {} {}",
                    ours.time.total,
                    theirs.time.total
                );
            }
        }
    }
}

/// Steps add up to the difference, and none loses.
#[test]
fn steps_add_up() {
    let model = LanguageModel { global_batch: 64, ..shipped("gpt3-175b") };
    let pins = Pins { chips: Some(64), tp: Some(8), ..Pins::default() };
    let d = difference(&system("clusters/selene-2022"), &model, &pins, &Limits::default(), Deadline::never()).unwrap();
    let sum: f64 = d.steps.iter().map(|s| s.saves).sum();
    assert!(same(sum, d.taken.time.total - d.possible.time.total), "{d:?}");
    let names: Vec<&str> = d.steps.iter().map(|s| s.what).collect();
    assert_eq!(names, ["host", "fusion", "sharding", "overlap", "recomputation", "schedule", "degrees"]);
    assert!(d.steps.iter().all(|s| s.saves >= -1e-9 * d.taken.time.total), "{:?}", d.steps);
    assert!(d.steps[1].saves > 0.0 && d.software == "Megatron-LM 2022");
}

/// A layer by hand: fusions leave out what they say, in bytes, and tokens divided make whole matrices.
#[test]
fn fusions_and_divisions_by_hand() {
    let system = System { software: Some(Software::Free), ..system("h100-dgx-8") };
    let model = model("layers: 1, hidden: 1024, heads: 8, position: learned, vocab: 1024, seq: 1024, global_batch: 8");
    let machine = Machine::possible(&system).unwrap();
    let peak = machine.peak(&model).unwrap();
    let key = BlockKey {
        division: flowspace::execution::layer::Division {
            tp: 4,
            cp: 1,
            ep: 1,
            chips: 4,
            micro_batch: 2,
            sequence_parallel: false,
        },
        recompute: flowspace::execution::Recompute::None,
        overlap_tp: false,
    };
    let none = LayerMapping { fused: Fusions::NONE, ..LayerMapping::of_stack(&machine) };
    let sums = |m: &LayerMapping| Sums::of(&Kernels::new(&machine, &model, key.division, peak).by(m).layer(false));
    let fused = |fused: Fusions| sums(&LayerMapping { fused, ..none });
    let (base, tokens, h, word) = (sums(&none), 2048.0, 1024.0, 2.0);
    // The function's input is read once less; backward its output's gradient is neither written nor read.
    let f = fused(Fusions { function: true, ..Fusions::NONE });
    assert!(same(base.bytes[0] - f.bytes[0], tokens * 4.0 * h / 4.0 * word), "{} {}", base.bytes[0], f.bytes[0]);
    assert!(same(base.bytes[2] - f.bytes[2], 2.0 * tokens * 4.0 * h / 4.0 * word));
    // A sum and the norm after it pass once less; backward both branches twice less. No factor: this software reaches the least.
    let elementwise = machine.stack.elementwise;
    assert_eq!(elementwise, 1.0);
    let s = fused(Fusions { sums: true, ..Fusions::NONE });
    assert!(
        same(base.bytes[0] - s.bytes[0], tokens * h * word)
            && same(base.bytes[2] - s.bytes[2], 4.0 * tokens * h * word)
    );
    // Queries, keys, values and outputs are neither read nor written again.
    let r = fused(Fusions { reorder: true, ..Fusions::NONE });
    assert!(same(base.bytes[0] - r.bytes[0], 2.0 * 4.0 * h * tokens / 4.0 * word));
    // As many FLOP, and four times the weights.
    let divided = LayerMapping { perceptron: Branch::ALL[1], ..none };
    let d = sums(&divided);
    assert!(same(d.forward_flop, base.forward_flop) && same(d.backward_flop, base.backward_flop));
    let [weights, activations] = [8.0 * h * h * word, tokens * 10.0 * h * word];
    let part = |w: f64, first: f64, last: f64| weights * w + activations / 10.0 * (2.0 * first + 8.0 * last);
    // Of weights divided: a quarter of them, whole hidden and a quarter of the inner activations; of tokens: all of them, a quarter of both.
    assert!(
        same(d.bytes[0] - base.bytes[0], part(1.0, 0.25, 0.25) - part(0.25, 1.0, 0.25)),
        "{} {}",
        d.bytes[0],
        base.bytes[0]
    );
    let pass = |m: &LayerMapping| layer_pass(&machine, &model, &key, false, m, &sums(m));
    let kept = tokens * h * word * (1.0 - 1.0 / 4.0);
    assert!(same(pass(&none).kept - pass(&divided).kept, kept));
    assert_eq!(none.attention_kernel(), AttentionKernel::Fused);
}

/// Rows of a study and `explain` say what lies between, on chips of both kinds.
#[test]
fn rows_say_what_lies_between() {
    let scratch = crate::scratch::Scratch::new("possible");
    let study = "name: s\nworkload: { from: gpt3-6.7b, global_batch: 64 }\nsystem: h100-dgx-8\naxes:\n\
                 \x20 - name: kind\n\x20   points:\n\x20     kernels: { system: h100-dgx-8, system.software: free }\n\
                 \x20     graphs: { system: sn10-8-torus-2d }\n\
                 solve: { difference: true }\n";
    scratch.write("s.yaml", study);
    scratch.succeed(&["study", "run", "s.yaml", "--no-plots", "--out", "out"]);
    let mut rows = csv::Reader::from_path(scratch.file("out/results.csv")).unwrap();
    let header = rows.headers().unwrap().clone();
    let mut kinds = 0;
    for row in rows.records().map(Result::unwrap) {
        let cell = |name: &str| header.iter().position(|h| h == name).map_or("", |i| &row[i]);
        let number = |name: &str| cell(name).parse::<f64>().ok();
        let most = if cell("kind") == "graphs" { 0.02 } else { 1e-6 };
        let gap = number("gap").unwrap();
        assert!(cell("software") == "free" && gap <= most && (cell("status") == "optimal") == (gap <= 1e-6), "{row:?}");
        let steps = ["host", "fusion", "sharding", "overlap", "recomputation", "schedule", "degrees", "mapping"];
        let saved: Vec<f64> = steps.iter().filter_map(|s| number(&format!("saved_{s}_s"))).collect();
        let between = number("software_iteration_s").unwrap() - number("iteration_s").unwrap();
        assert!(same(saved.iter().sum(), between), "{row:?}");
        kinds += saved.len();
    }
    // Seven steps on one kind of chip, the host and the mapping on the other.
    assert_eq!(kinds, 9);
    let text = scratch.succeed(&["explain", "--workload", "gpt3-6.7b", "--system", "h100-dgx-8", "--tp", "8"]);
    assert!(
        text.contains("generic takes") && text.contains("sharding") && text.contains("nothing possible is below"),
        "{text}"
    );
}

/// Software without cost is no slower than any stack of the catalogue on the same chip: trained with short and long samples, and served.
#[test]
fn no_stack_beats_ideal_software() {
    let stacks = catalogue::entries().iter().filter(|entry| entry.kind == catalogue::Kind::Stack);
    let stacks: Vec<Stack> =
        stacks.map(|entry| Reader::read(&Loader.load(&entry.file(), None).unwrap()).unwrap()).collect();
    let (mut trained, mut served) = (0, 0);
    for name in ["h100-dgx-8", "h200-dgx-8", "a100-40gb-4", "sn40l-8"] {
        for stack in &stacks {
            let with = |software| System { software: Some(software), stack: Some(Ref(stack.clone())), ..system(name) };
            let (theirs, ideal) = (with(Software::Stack), with(Software::Ideal));
            let what = format!("{} on {name}", stack.name);
            for seq in [2048, 65_536] {
                let model = LanguageModel { seq, layers: 4, global_batch: 16, ..shipped("llama3-8b") };
                let pins =
                    Pins { micro_batch: Some(1), pp: Some(1), recompute: Some(Recompute::None), ..Pins::default() };
                let best = |system: &System| {
                    let all = Executions::new(system, &model, &Limits::default()).unwrap();
                    all.search(&pins, Deadline::never()).unwrap().best.map(|best| best.time.total)
                };
                let Some(seconds) = best(&theirs) else { continue };
                let least = best(&ideal).unwrap_or_else(|| panic!("{what}: does not fit with ideal software"));
                assert!(least <= seconds * (1.0 + 1e-9), "{what}, {seq} tokens: {least} for {seconds}");
                trained += 1;
            }
            // Free, and as a pipeline, whose microbatches and passes software may cut otherwise.
            let cases = [(1000, "llama3-8b", None), (30_000, "llama3-8b", None), (500, "mixtral-8x7b", None)];
            for (seq, model, pp) in cases.into_iter().chain([(1000, "llama3-8b", Some(4))]) {
                let model =
                    LanguageModel { seq, layers: 8, pass: ModelPass::Inference, generated: Some(40), ..shipped(model) };
                let best = |system: &System| {
                    let wanted = Wanted {
                        tp: pp.map(|_| 1),
                        pp,
                        dp: None,
                        ep: None,
                        batches: vec![40],
                        limits: inference::Limits::default(),
                        goal: Goal::Latency,
                        aim: Aim::TIME,
                    };
                    let server = Server::new(system).unwrap();
                    inference::search(&server, &model, &wanted).unwrap().best.map(|best| best.latency_s)
                };
                let Some(seconds) = best(&theirs) else { continue };
                let least = best(&ideal).unwrap_or_else(|| panic!("{what}: does not fit with ideal software"));
                assert!(least <= seconds * (1.0 + 1e-9), "{what}, prompts of {seq}: {least} for {seconds}");
                served += 1;
            }
        }
    }
    assert!(trained > 200 && served > 400, "{trained} {served}");
}
