//! What a point lacks: obeying the remedy as it is printed, once, gives a plan, and of a single memory one per cent less does not.

use crate::properties::check;
use crate::properties::search::{describe, system, workload};
use flowspace::check::verify;
use flowspace::deadline::Deadline;
use flowspace::explain::remedies;
use flowspace::mapping::degrees::Wanted;
use flowspace::mapping::shortage::Change;
use flowspace::mapping::{Answer, Request, map};
use flowspace::system::System;
use flowspace::units::{Bytes, Quantity};
use flowspace::workload::Workload;
use proptest::prelude::*;
use std::cell::Cell;

fn request() -> Request {
    Request { joint_nodes: 100_000, ..Request::default() }
}

/// Whether a point has a plan, which the checker agrees with.
fn has_plan(workload: &Workload, system: &System, request: &Request) -> Result<bool, TestCaseError> {
    match map(workload, system, request).map_err(|e| TestCaseError::fail(e.to_string()))? {
        Answer::Mapped(plan, _) => {
            verify(&plan).map_err(|e| TestCaseError::fail(e.to_string()))?;
            Ok(true)
        }
        Answer::Infeasible(_) => Ok(false),
    }
}

/// The change with its memory read from the text that is printed.
fn as_printed(change: Change) -> Change {
    let read = |bytes: f64| {
        let text = change.to_string();
        let size = text.rsplit(" of ").next().unwrap_or_default();
        assert_eq!(Bytes::parse(size), Ok(Bytes(bytes)), "{text}");
        Bytes::parse(size).map_or(0.0, |b| b.0)
    };
    match change {
        Change::Sram { bytes } => Change::Sram { bytes: read(bytes) },
        Change::Dram { bytes } => Change::Dram { bytes: read(bytes) },
        other => other,
    }
}

#[test]
fn obeying_a_remedy_once_is_enough() {
    // Kinds of answers: one memory, several resources, other changes; and points with a plan.
    let seen = Cell::new([0u32; 4]);
    let count = |kind: usize| {
        let mut all = seen.get();
        all[kind] += 1;
        seen.set(all);
    };
    // The SRAM and the DRAM, a power of two each; degrees that are given, or not.
    let short = (8..=22u32, prop_oneof![1 => Just(None), 3 => (12..=27u32).prop_map(Some)], 0..4usize);
    check(60, &(workload(false), system(false), short), |(w, mut s, (sram, dram, degrees))| {
        s.chip.0.sram = Bytes(f64::from(sram).exp2());
        s.memory.0.capacity = dram.map(|e| Bytes(f64::from(e).exp2()));
        let mut request = request();
        let chips = s.chip_count();
        request.wanted = match degrees {
            0 => Wanted { tp: Some(chips), pp: Some(1), dp: Some(1), ..Wanted::default() },
            1 => Wanted { tp: Some(1), pp: Some(1), dp: Some(chips), ..Wanted::default() },
            _ => Wanted::default(),
        };
        let at = format!("{} {:?}", describe(&w, &s), request.wanted);
        let answer = map(&w, &s, &request).map_err(|e| TestCaseError::fail(format!("{at}: {e}")))?;
        let Answer::Infeasible(reason) = answer else {
            count(0);
            return Ok(());
        };
        let text = reason.to_string();
        for mend in &reason.mends {
            prop_assert!(text.contains(&mend.to_string()), "{text} lacks {mend}");
            let (mut w, mut s, mut request) = (w.clone(), s.clone(), request.clone());
            mend.changes.iter().for_each(|c| as_printed(*c).apply(&mut w, &mut s, &mut request));
            prop_assert!(has_plan(&w, &s, &request)?, "{at}: {text}: {mend} is not enough");
        }
        // More memory mends every point whose degrees, batch and layers allow a plan at all.
        if let Some(first) = reason.mends.first() {
            let memories =
                first.changes.iter().filter(|c| matches!(c, Change::Sram { .. } | Change::Dram { .. })).count();
            count(if first.changes.len() > 1 {
                2
            } else if memories == 1 {
                1
            } else {
                3
            });
            // Each memory a little less, the others as they are.
            for (i, change) in first.changes.iter().enumerate().filter(|_| first.least) {
                let less = match *change {
                    Change::Sram { bytes } => Change::Sram { bytes: bytes * 0.99 },
                    Change::Dram { bytes } => Change::Dram { bytes: bytes * 0.99 },
                    _ => continue,
                };
                let (mut w, mut s, mut request) = (w.clone(), s.clone(), request.clone());
                for (j, other) in first.changes.iter().enumerate() {
                    (if i == j { less } else { *other }).apply(&mut w, &mut s, &mut request);
                }
                prop_assert!(!has_plan(&w, &s, &request)?, "{at}: {text}: less than {change} is enough");
            }
        } else {
            prop_assert!(!matches!(reason.resource.as_str(), "sram" | "dram"), "{at}: {text}");
        }
        // `explain` says the same of the memory that the reason names.
        if let Some(bytes) = reason.mends.first().and_then(|m| m.bytes()) {
            let found = remedies(&w, &s, &request, &reason, Deadline::never());
            prop_assert!(
                found.iter().any(|r| r.enough.as_ref().is_ok_and(|text| text.starts_with(&Bytes(bytes).to_string()))),
                "{text}: {found:?}"
            );
            prop_assert!(found.iter().all(|r| r.enough.is_err() || r.seconds.is_some()), "{text}: {found:?}");
        }
        Ok(())
    });
    let [with, one, several, others] = seen.get();
    println!("{with} with a plan, {one} short of one memory, {several} of several, {others} of something else");
    assert!(with >= 5 && one >= 10 && several >= 3, "{:?}", seen.get());
}
