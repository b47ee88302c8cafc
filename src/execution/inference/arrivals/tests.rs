//! Queues whose times are known by hand, and what must hold of every run.

use super::*;
use crate::execution::inference::tests::{ONE, model, server};
use crate::execution::inference::{Given, predict_for};
use crate::model::objective::Worth;

/// All memory that requests can want, prompts whole and before others.
const AMPLE: (&str, &str) = ("10 kB", "100 MB");

fn requests(n: usize, prompt: u64, generated: u64) -> Vec<Request> {
    vec![Request { arrival_s: 0.0, prompt, generated }; n]
}

fn run(server: &Server, model: &LanguageModel, layout: Layout, requests: &[Request]) -> Tally {
    serve(server, model, layout, &Load { requests, users: None }, Deadline::never()).unwrap().unwrap()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-12), "{a} {b}");
}

/// Requests that all come at once and fit are the batch that [`predict_for`] serves: one pass of prompts, steps whose times rise linearly.
#[test]
fn what_comes_at_once_is_a_batch() {
    let of_mesh = ", mesh: {token: 1 s, prompt: 3 s, prompt_far: 2 s}";
    for (n, layout, more) in [
        (1, ONE, ""),
        (5, ONE, ""),
        (5, ONE, of_mesh),
        (8, Layout { dp: 2, ..ONE }, ""),
        (6, Layout { tp: 2, ..ONE }, ""),
        (1, Layout { pp: 2, ..ONE }, ""),
        (6, Layout { pp: 2, ..ONE }, ""),
        // Three microbatches, of three stages as many and of four too.
        (5, Layout { pp: 3, ..ONE }, ""),
        (5, Layout { pp: 4, ..ONE }, ""),
    ] {
        let size = format!("size: {}", layout.chips());
        let paged = format!("cache: paged, cache_block: 1, cache_share: 1, request: 3 s{more}");
        let s = server(&[AMPLE, ("size: 1", &size), ("cache: contiguous, cache_share: 1", &paged)]);
        let m = if layout.pp > 2 { model(&[("layers: 2", "layers: 4")]) } else { model(&[]) };
        let batch = predict_for(
            &s,
            &m,
            layout,
            Given { batch: n, wave: Some(n / layout.dp), ..Given::default() },
            &Worth::TIME,
        )
        .unwrap();
        let served = run(&s, &m, layout, &requests(n as usize, 2, 4));
        close(served.ttft_s.max, batch.ttft_s);
        close(served.latency_s.max, batch.latency_s);
        close(served.tpot_s.unwrap().mean, batch.tpot_s);
        close(served.generated_per_s, batch.generated_per_s);
        close(served.energy.total(), batch.energy.total());
    }
}

/// A prompt goes through all stages one after the other, whatever short ones come with it: its first token is not there before that of a prompt alone.
#[test]
fn a_long_prompt_is_on_one_stage_at_a_time() {
    let s = server(&[AMPLE, ("size: 1", "size: 4"), ("cache_share: 1 ", "cache_share: 1, prompts_read: beside ")]);
    let m = model(&[("layers: 2", "layers: 4")]);
    let layout = Layout { pp: 4, ..ONE };
    let mut last = 0.0;
    for beside in [0, 1, 3, 7] {
        let mut all = requests(1 + beside, 1, 1);
        all[0].prompt = 400;
        let first = run(&s, &m, layout, &all).answers[0].ttft_s();
        assert!(first >= last * (1.0 - 1e-12), "{beside}: {first} {last}");
        last = first;
    }
}

/// How many requests a run has says nothing of what a replica holds: where few have room at once, ten times as many end at the same rate.
#[test]
fn a_longer_run_has_the_same_room() {
    // 1 kB of scores for each sequence.
    let m = model(&[("vocab: 10", "vocab: 256")]);
    let s = server(&[("10 kB", "16 kB")]);
    let rate = |n: usize| {
        let all = requests(n, 2, 4);
        let served = serve(&s, &m, ONE, &Load { requests: &all, users: Some(8) }, Deadline::never()).unwrap().unwrap();
        (served.at_once, served.generated_per_s)
    };
    let (short, long) = (rate(64), rate(640));
    assert!((long.1 / short.1 - 1.0).abs() < 0.02 && (long.0 / short.0 - 1.0).abs() < 0.1, "{short:?} {long:?}");
}

/// Tokens of a second of users are those made between two times, the first of an answer where it is there.
#[test]
fn tokens_are_counted_where_they_are_made() {
    let a = Answer { id: 0, arrival_s: 0.0, prompt: 1, generated: 11, replica: 0, first_s: 10.0, end_s: 20.0 };
    assert_eq!(a.generated_within(0.0, 30.0), 11.0);
    assert_eq!(a.generated_within(12.0, 15.0), 3.0);
    assert_eq!(a.generated_within(0.0, 12.0), 3.0);
    assert_eq!(a.generated_within(20.0, 30.0), 0.0);
    assert_eq!(Answer { generated: 0, end_s: 10.0, ..a }.generated_within(0.0, 30.0), 0.0);
}

/// One request at a time, each of S seconds, that come at random at a share r of 1/S: they wait r S / (2 (1 - r)) on average (M/D/1: Pollaczek and Khinchine).
#[test]
fn one_at_a_time_wait_as_a_queue_of_equal_services_does() {
    let s = server(&[AMPLE, ("cache_share: 1 ", "cache_share: 1, most_sequences: 1 ")]);
    let m = model(&[]);
    let alone = run(&s, &m, ONE, &requests(1, 2, 1)).latency_s.mean;
    for r in [0.3, 0.6, 0.8] {
        let all = poisson(&requests(300_000, 2, 1), r / alone, 11);
        let waited = run(&s, &m, ONE, &all).latency_s.mean - alone;
        let expected = r * alone / (2.0 * (1.0 - r));
        assert!((waited / expected - 1.0).abs() < 0.06, "{r}: {waited} {expected}");
    }
}

/// Little's law holds of every run to the last digits: the mean number of requests in the system is the rate at which they are answered times the mean of
/// their latencies. And nothing is lost: every request has its tokens, in order, and replicas never compute for longer than the run takes.
#[test]
fn nothing_is_lost() {
    let m = model(&[]);
    for reads in ["before", "beside", "pieces"] {
        for (capacity, tokens) in [("100 MB", 8192), ("100 MB", 3), ("1480 B", 4)] {
            let with = format!(
                "cache: paged, cache_block: 2, cache_share: 1, admits_whole: false, prompts_read: {reads}, most_tokens: {tokens}"
            );
            let s = server(&[("10 kB", capacity), ("cache: contiguous, cache_share: 1", &with)]);
            let mut all = poisson(&requests(300, 5, 6), 1.0 / 200.0, 3);
            all.iter_mut()
                .enumerate()
                .for_each(|(i, r)| (r.prompt, r.generated) = (1 + i as u64 % 7, 1 + i as u64 % 5));
            let served = run(&s, &m, ONE, &all);
            assert_eq!(served.answers.len(), 300);
            for a in &served.answers {
                assert!(a.arrival_s < a.first_s && a.first_s <= a.end_s, "{a:?}");
                assert_eq!(a.generated > 1, a.first_s < a.end_s, "{a:?}");
            }
            assert!(served.busy <= 1.0 + 1e-9 && served.at_once <= 300.0);
            // The number in the system by its steps up and down.
            let mut moves: Vec<(f64, f64)> =
                served.answers.iter().flat_map(|a| [(a.arrival_s, 1.0), (a.end_s, -1.0)]).collect();
            moves.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (mut inside, mut area, mut before) = (0.0, 0.0, moves[0].0);
            for (at, by) in moves {
                area += inside * (at - before);
                (inside, before) = (inside + by, at);
            }
            let little = 300.0 * served.latency_s.mean;
            assert!((area / little - 1.0).abs() < 1e-9, "{area} {little}");
            assert_eq!(served.preempted > 0, capacity == "1480 B", "{reads} {capacity} {}", served.preempted);
        }
    }
}

/// Users that wait for answers: as many requests as users are there at any time until the last are given out, and one user sees what one request alone takes.
#[test]
fn users_wait_for_their_answers() {
    let s = server(&[AMPLE]);
    let m = model(&[]);
    let all = requests(40, 2, 4);
    let alone = run(&s, &m, ONE, &all[..1]).latency_s.mean;
    let one = serve(&s, &m, ONE, &Load { requests: &all, users: Some(1) }, Deadline::never()).unwrap().unwrap();
    close(one.latency_s.mean, alone);
    close(one.answered_per_s, 1.0 / alone);
    let mut before = one.answered_per_s;
    for users in [2, 4, 8] {
        let served =
            serve(&s, &m, ONE, &Load { requests: &all, users: Some(users) }, Deadline::never()).unwrap().unwrap();
        assert!(served.answered_per_s > before, "{users}");
        before = served.answered_per_s;
    }
}

#[test]
fn what_has_no_room_is_named() {
    let s = server(&[AMPLE, ("cache_share: 1 ", "cache_share: 1, most_tokens: 4 ")]);
    let refused = |requests: &[Request], edits: &[(&str, &str)]| {
        let m = model(edits);
        serve(&s, &m, ONE, &Load { requests, users: None }, Deadline::never()).unwrap_err().to_string()
    };
    let long = [requests(1, 2, 2)[0], requests(1, 10_000_000, 2)[0]];
    assert!(refused(&long, &[]).starts_with("request 1: the keys and values of"), "{}", refused(&long, &[]));
    let fixed = server(&[("cache: contiguous", "cache: static")]);
    let why = serve(&fixed, &model(&[]), ONE, &Load { requests: &long, users: None }, Deadline::never()).unwrap_err();
    assert!(why.to_string().contains("cache: static"), "{why}");
}

/// Percentiles are values that were: of 1 to 10 half are not above 5, nine of ten not above 9, 99 of a hundred not above 10.
#[test]
fn percentiles_are_values() {
    let s = Spread::of((1..=10).rev().map(f64::from));
    assert_eq!((s.mean, s.p50, s.p90, s.p95, s.p99, s.max), (5.5, 5.0, 9.0, 10.0, 10.0, 10.0));
    assert_eq!(Spread::of([]), Spread::default());
}

/// Requests that come while all replicas but one are idle go to one of these, whatever the busy one is about to end.
#[test]
fn the_busy_replica_is_left_alone() {
    let s = server(&[AMPLE, ("size: 1", "size: 2")]);
    let m = model(&[]);
    let alone = run(&s, &m, ONE, &requests(1, 2, 1)).latency_s.mean;
    let mut two = requests(2, 2, 1);
    two[1].arrival_s = alone / 2.0;
    let served = run(&s, &m, Layout { dp: 2, ..ONE }, &two);
    assert_eq!([served.answers[0].replica, served.answers[1].replica], [0, 1]);
    close(served.latency_s.max, alone);
}

/// What every token sees all of is read whole: one encoder's sequence takes what a batch of one does, however short a pass.
#[test]
fn encoders_are_read_whole() {
    let edits = [("pass: inference, seq: 2, generated: 4", "pass: inference, seq: 7, causal: false, head: none")];
    let m = model(&edits);
    let s = server(&[AMPLE, ("cache_share: 1 ", "cache_share: 1, prompts_read: pieces, most_tokens: 3 ")]);
    let given = Given { batch: 1, wave: Some(1), ..Given::default() };
    let batch = predict_for(&s, &m, ONE, given, &Worth::TIME).unwrap();
    let served = run(&s, &m, ONE, &requests(1, 7, 0));
    close(served.latency_s.mean, batch.latency_s);
}
