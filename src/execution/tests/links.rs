//! Which links groups have, what runs beside what on them, and that no link carries more than it can.

use super::*;
use crate::execution::communication::{expert_bytes, hidden_bytes, keys_and_values_bytes};
use crate::execution::layer::Division;
use crate::execution::schedule::{Constants, Pipeline};

#[test]
fn groups_are_where_the_order_of_degrees_puts_them() {
    let m = machine(&Parts { nodes: 8, ..Parts::default() });
    let sizes = |n, stride| m.group(Peers::alone(n, stride)).iter().map(|d| (d.size, d.bandwidth)).collect::<Vec<_>>();
    assert_eq!(sizes(1, 1), []);
    assert_eq!(sizes(8, 1), [(8, 200e9)]);
    assert_eq!(sizes(16, 1), [(8, 200e9), (2, 20e9)]);
    assert_eq!(sizes(8, 4), [(2, 200e9), (4, 20e9)]);
    assert_eq!(sizes(4, 16), [(4, 20e9)]);
    // All-reduce of 16 over both: 2 x 7/8 inside, 2 x 1/2 of an eighth outside.
    close(m.line(Traffic::AllReduce, Peers::alone(16, 1)).at(1e9), 1.75e9 / 200e9 + 1e9 / 8.0 / 20e9, 1e-9);
    assert_eq!(m.line(Traffic::AllReduce, Peers::alone(1, 1)).at(1e9), 0.0);
    close(m.line(Traffic::Next, Peers::alone(4, 4)).at(1e9), 1e9 / 20e9, 1e-12);
    // Stages in one box, then some in another, then in boxes whose own links are slower than those between them.
    close(m.line(Traffic::Next, Peers::alone(8, 1)).at(1e9), 1e9 / 200e9, 1e-12);
    close(m.line(Traffic::Next, Peers::alone(16, 1)).at(1e9), 1e9 / 20e9, 1e-12);
    let slow = machine(&Parts { nodes: 8, inner: 2e9, ..Parts::default() });
    close(slow.line(Traffic::Next, Peers::alone(16, 1)).at(1e9), 1e9 / 2e9, 1e-12);
    close(slow.line(Traffic::Next, Peers::alone(4, 16)).at(1e9), 1e9 / 20e9, 1e-12);
}

/// Tensor-parallel chips of two boxes and replicas share the link between boxes: what it has for replicas hangs on its own bytes, however fast the others are.
#[test]
fn a_faster_link_inside_boxes_makes_nothing_slower() {
    let model = gpt(6, 1024, 16, 512, 64);
    let stack = ", overlap_dp: true, collective_overhead: 30 us";
    let mut before = f64::INFINITY;
    for inner in [10e9, 20e9, 50e9, 200e9, 1e12, 1e15] {
        let m = machine(&Parts { node: 4, nodes: 8, inner, stack, ..Parts::default() });
        let e = Execution { overlap_dp: true, ..execution(8, 1, 4, 2) };
        let time = predict_any(&m, &model, &e).unwrap().time;
        assert!(time.total <= before * (1.0 + 1e-12), "{inner}: {} after {before}", time.total);
        before = time.total;
    }
}

#[test]
fn software_that_cannot_overlap_is_not_asked_to() {
    let m = machine(&Parts { stack: ", overlap_dp: false, overlap_tp: false", ..Parts::default() });
    let model = gpt(6, 1024, 8, 512, 24);
    let e = Execution { overlap_tp: true, ..execution(2, 1, 4, 1) };
    assert!(predict_any(&m, &model, &e).unwrap_err().contains("overlap_tp: the stack stack of test cannot"));
    let all = executions(&m, &model, &Pins::default());
    assert!(!all.is_empty() && all.iter().all(|e| !e.overlap_dp && !e.overlap_tp));
    let found = search(&m, &model, &Pins::default()).unwrap();
    assert_eq!(found.covered, all.len() as u64);
}

/// Overlap and ZeRO: hidden time is not waited for, and collectives among one chip cost nothing.
#[test]
fn overlap_hides_what_it_says() {
    let m = machine(&Parts { nodes: 8, stack: HOST, ..Parts::default() });
    let model = gpt(24, 2048, 16, 1024, 64);
    let e = execution(4, 1, 16, 2);
    let time = |e: &Execution| predict_any(&m, &model, e).unwrap().time;
    let plain = time(&e);
    let dp = time(&Execution { overlap_dp: true, ..e.clone() });
    close(dp.dp + dp.hidden, plain.dp + plain.hidden, 1e-9);
    assert!(dp.dp < plain.dp && dp.total < plain.total);
    let tp = time(&Execution { overlap_tp: true, ..e.clone() });
    close(tp.tp + tp.hidden, plain.tp + plain.hidden, 1e-9);
    assert!(tp.tp < plain.tp);
    let alone = time(&execution(1, 1, 1, 2));
    assert_eq!((alone.tp, alone.dp, alone.bubble, alone.hand_over, alone.hidden), (0.0, 0.0, 0.0, 0.0, 0.0));
    // ZeRO 1 sends as many bytes as the all-reduce of 2-byte gradients.
    close(time(&Execution { zero: Zero::Optimizer, ..e.clone() }).dp, plain.dp, 1e-9);
    assert!(time(&Execution { zero: Zero::Weights, ..e }).dp > plain.dp);
}

/// Whatever hides communication, an iteration grows with every pass of every block: a slower mapping is never a faster execution. Of 16 chips replicas have a link alone and one with
/// tensor-parallel chips.
#[test]
fn no_pass_that_takes_longer_makes_an_iteration_shorter() {
    let slow_links = Parts { nodes: 4, inner: 20e9, outer: 2e9, stack: HOST, ..Parts::default() };
    let m = machine(&slow_links);
    let model = gpt(6, 1024, 8, 512, 24);
    let longer: [fn(&mut Blocks) -> &mut f64; 6] = [
        |b| &mut b.plain.forward_pass,
        |b| &mut b.plain.backward_pass,
        |b| &mut b.embedding.forward_pass,
        |b| &mut b.embedding.backward_pass,
        |b| &mut b.head.forward_pass,
        |b| &mut b.head.backward_pass,
    ];
    let of =
        |chips, step| executions(&m, &model, &Pins { chips: Some(chips), ..Pins::default() }).into_iter().step_by(step);
    let mut hidden = 0;
    for e in &of(8, 5).chain(of(16, 19)).collect::<Vec<_>>() {
        let block = block(&m, &model, e);
        let time = |block: &Blocks| of_blocks(&m, &model, e, *block).unwrap().time;
        let before = time(&block);
        hidden += usize::from(before.hidden > 0.0 && e.zero == Zero::Gradients && e.overlap_dp);
        for part in longer {
            for factor in [1.01, 1.5, 4.0] {
                let mut slower = block;
                *part(&mut slower) *= factor;
                let after = time(&slower).total;
                assert!(after >= before.total * (1.0 - 1e-12), "{e:?}, {factor}: {after} {}", before.total);
            }
        }
    }
    assert!(hidden > 50, "{hidden}");
}

/// A collective delays what it runs beside by a share of its time. Hand-overs beside other pieces are waited for in none of 32 microbatches and two pieces, nor by three
/// stages in the half of a bubble.
#[test]
fn what_runs_beside_other_work() {
    let small = gpt(8, 1024, 8, 512, 64);
    let of = |stack: &'static str, e: &Execution| {
        predict_any(&machine(&Parts { stack, nodes: 2, ..Parts::default() }), &small, e).unwrap().time
    };
    let replicas = Execution { overlap_dp: true, ..execution(1, 1, 8, 1) };
    let (free, delayed) = (of("", &replicas), of(", hidden_delays: 0.3", &replicas));
    assert!(free.hidden > 0.0);
    close(delayed.total - free.total, 0.3 * free.hidden, 1e-6);
    let pieces = Execution { schedule: Schedule::Interleaved, chunks: 2, ..execution(1, 4, 2, 1) };
    let (waiting, beside) = (of("", &pieces), of(", overlap_hand_over: true", &pieces));
    assert!(waiting.hand_over > 0.0 && beside.hand_over == 0.0);
    close(waiting.total - beside.total, waiting.hand_over * (1.0 + 1.5 / 64.0), 1e-6);
    close(beside.hidden - waiting.hidden, waiting.hand_over, 1e-6);
}

/// Of two chips inside each of four boxes, of twelve bytes: half inside at 200 GB/s, then three quarters of the half that is left at 20 GB/s, 0.03 ns to 0.225. An all-to-all has both at
/// work at once, the outer for 0.0375 ns a byte and the inner for 0.0025.
#[test]
fn shares_of_links_by_hand() {
    let m = machine(&Parts { node: 4, nodes: 8, ..Parts::default() });
    let group = Peers::alone(8, 2);
    let shares = |traffic| m.shares(traffic, group);
    for traffic in [Traffic::Gather, Traffic::AllReduce] {
        let found = shares(traffic);
        close(found[0], 2.0 / 17.0, 1e-12);
        close(found[1], 15.0 / 17.0, 1e-12);
    }
    let found = shares(Traffic::AllToAll);
    close(found[0], 1.0 / 15.0, 1e-12);
    close(found[1], 1.0, 1e-12);
    // From one to the next some hop inside, at a tenth of the time of the hop between boxes that all wait for.
    let found = shares(Traffic::Next);
    close(found[0], 0.1, 1e-12);
    close(found[1], 1.0, 1e-12);
    assert_eq!(m.shares(Traffic::Gather, Peers::alone(1, 1)), [0.0, 0.0]);
    let inside = Peers::alone(2, 1);
    assert!(m.share_a_link(inside, group) && !m.share_a_link(inside, Peers::alone(8, 4)));
}

/// Six chips of a box of eight: three boxes hold three groups, so that of four some cross and all cost what they cost on boxes of two, which hold none; of boxes of 72 eight hold 512 chips in
/// groups of 64, and two do not hold three groups of 48, which go in halves of 24.
#[test]
fn groups_that_boxes_do_not_hold_cross_their_border() {
    let parts = |node: u64, nodes: u64, (chips, apart, of): (u64, u64, u64)| {
        let m = machine(&Parts { node, nodes, ..Parts::default() });
        m.group(Peers { chips, apart, of }).iter().map(|d| (d.size, d.bandwidth)).collect::<Vec<_>>()
    };
    let (inner, outer) = (200e9, 20e9);
    assert_eq!(parts(8, 3, (6, 1, 18)), [(6, inner)]);
    assert_eq!(parts(8, 3, (6, 1, 24)), [(2, inner), (3, outer)]);
    assert_eq!(parts(8, 3, (6, 1, 24)), parts(2, 12, (6, 1, 24)));
    assert_eq!(parts(72, 8, (64, 1, 512)), [(64, inner)]);
    assert_eq!(parts(72, 2, (48, 1, 144)), [(24, inner), (2, outer)]);
    // Three chips at a stride of two span six; five share no divisor with a box of eight.
    assert_eq!(parts(8, 3, (3, 2, 18)), [(3, inner)]);
    assert_eq!(parts(8, 3, (3, 2, 24)), [(3, outer)]);
    assert_eq!(parts(8, 5, (5, 1, 40)), [(5, outer)]);
    let gpt = LanguageModel { heads: 12, ..gpt(6, 1536, 8, 512, 24) };
    let time = |node, nodes, e: &Execution| {
        predict_any(&machine(&Parts { node, nodes, ..Parts::default() }), &gpt, e).unwrap().time
    };
    let all = execution(6, 1, 4, 1);
    close(time(8, 3, &all).tp, time(2, 12, &all).tp, 1e-12);
    assert!(time(8, 4, &all).tp < 0.5 * time(8, 3, &all).tp);
    let less = execution(6, 1, 3, 1);
    close(time(8, 3, &less).tp, time(6, 4, &less).tp, 1e-12);
}

/// What a chip sends in an iteration of a pipeline of one stage among chips behind one switch, in seconds of its port, from the formulas of the papers and nothing else of the prediction:
/// collectives of tensor, context and expert parallelism of every layer and microbatch, and what replicas exchange.
fn sent_by_hand(model: &LanguageModel, e: &Execution, bandwidth: f64) -> f64 {
    let division: Division = BlockKey::of(e).division;
    let part = |n: u64| (n as f64 - 1.0) / n as f64;
    let (hidden, again) = (hidden_bytes(model, &division), f64::from(u8::from(e.recompute == Recompute::Full)));
    let (reduce, crossing) = (2.0 * part(e.tp) * hidden, model.crossing());
    let gathered = if e.sequence_parallel { (2.0 + 2.0 * crossing) * part(e.tp) * hidden } else { 0.0 };
    let around = (1.0 + crossing) * (3.0 + again) * (e.cp as f64 - 1.0) * keys_and_values_bytes(model, &division);
    let routed = (4.0 + 2.0 * again) * part(e.ep) * expert_bytes(model, &division);
    let experts = model.expert_layers() as f64 * routed;
    // A decoder's layer adds up once more forward, and two gradients backward.
    let reduces = (2.0 + crossing) * (1.0 + again) + 2.0 + 2.0 * crossing;
    let layers = model.layers as f64 * (reduces * reduce + gathered + around) + experts;
    let microbatches = (model.global_batch / (e.dp * e.micro_batch)) as f64;
    let weights = ChipWeights::of(model, e.tp, e.ep, 1);
    let (dense, of_experts) = weights.of_stage(&stages(model, 1)[0]);
    let exchange = 2.0 * (dense * part(e.dp * e.cp) + of_experts * part(e.dp * e.cp / e.ep));
    let exchanges = match e.zero {
        Zero::Off | Zero::Optimizer => 2.0,
        Zero::Gradients => 1.0 + microbatches,
        Zero::Weights => 3.0 * microbatches,
    };
    (microbatches * (layers + 2.0 * reduce) + exchanges * exchange) / bandwidth
}

/// No execution behind one switch is shorter than its chips' ports take, whatever runs beside what; without the rule that groups share them some would be.
#[test]
fn no_port_carries_more_than_it_can() {
    let m = machine(&Parts { node: 16, inner: 5e9, stack: ", overlap_ep: true", capacity: "", ..Parts::default() });
    let plain = gpt(6, 1024, 8, 512, 32);
    let experts = model(
        "layers: 4, hidden: 512, heads: 8, vocab: 51200, seq: 256, global_batch: 32, experts: { count: 8, top_k: 2, ffn: 256 }",
    );
    let both = LanguageModel { encoder_layers: Some(2), ..plain.clone() };
    let (mut tight, mut looked) = (0, 0);
    for model in [&plain, &experts, &both] {
        let pins = Pins { chips: Some(16), pp: Some(1), ..Pins::default() };
        for e in executions(&m, model, &pins).iter().step_by(3) {
            let block = block(&m, model, e);
            let sent = sent_by_hand(model, e, 5e9);
            let time = of_blocks(&m, model, e, block).unwrap().time;
            assert!(time.total >= sent * (1.0 - 1e-12), "{e:?}: {} s, {sent} s of traffic", time.total);
            close(time.parts(), time.total, 1e-9);
            let links = IterationLinks { shared: Vec::new(), ..IterationLinks::of(&m, e.tp, e.cp, e.ep, e.dp, e.pp) };
            let alone = Pipeline {
                constants: &Constants::of(&m, model),
                block: &block,
                weights: &ChipWeights::of(model, e.tp, e.ep, e.pp),
                links: &links,
                kinds: &stages(model, e.pp),
                microbatches: e.microbatches(model.global_batch).unwrap() as f64,
            };
            tight += usize::from(alone.seconds(e) < sent);
            looked += 1;
        }
    }
    assert!(looked > 500 && tight > 50, "{tight} of {looked}");
}
