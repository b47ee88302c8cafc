//! The chain of a plan cut into pieces: one a stage or, interleaved, one a stage and chunk.

use crate::execution::passes::Order;
use crate::plan::Plan;
use crate::units::Bytes;

/// Repetitions of each block in each piece, in the order of the forward pass: piece `chunk * stages + stage`. A stage keeps what the plan gives it. Of
/// the block that is repeated most each chunk has about as many repetitions; blocks before it are in the first piece, blocks behind it in the last.
///
/// # Errors
/// Stages that cannot be cut so.
pub(super) fn of_stages(
    units: Vec<Vec<u64>>,
    repeats: &[u64],
    names: &[String],
    order: &Order,
) -> Result<Vec<Vec<u64>>, String> {
    let (chunks, stages) = (order.chunks(), units.len());
    if chunks == 1 {
        return Ok(units);
    }
    if stages < 2 {
        return Err("an interleaved schedule needs two stages or more, the plan has one".into());
    }
    let main = (0..repeats.len()).rev().max_by_key(|b| repeats.get(*b)).unwrap_or_default();
    let name = |block: usize| names.get(block).map_or("layer", String::as_str);
    for (stage, of_stage) in units.iter().enumerate() {
        let n = of_stage.get(main).copied().unwrap_or_default();
        if n < chunks {
            return Err(format!(
                "stage {stage} has {n} repetitions of {:?}, fewer than {chunks} chunks: take fewer (--chunks), or a plan with fewer stages",
                name(main)
            ));
        }
    }
    let mut pieces = vec![vec![0; repeats.len()]; stages * chunks as usize];
    for (stage, of_stage) in units.iter().enumerate() {
        for (block, n) in of_stage.iter().copied().enumerate().filter(|(_, n)| *n > 0) {
            // What is left over goes to the last chunks of the first stage, elsewhere to the first ones.
            let (each, rest) = (n / chunks, n % chunks);
            let more = |c: u64| if stage == 0 { c + rest >= chunks } else { c < rest };
            for chunk in 0..chunks {
                // Each stage has some of that block, so that those before it are all in the first stage and those behind it in the last.
                let size = match block.cmp(&main) {
                    std::cmp::Ordering::Equal => each + u64::from(more(chunk)),
                    std::cmp::Ordering::Less => n * u64::from(chunk == 0),
                    std::cmp::Ordering::Greater => n * u64::from(chunk + 1 == chunks),
                };
                let piece = pieces.get_mut(chunk as usize * stages + stage).and_then(|p| p.get_mut(block));
                if let Some(piece) = piece {
                    *piece = size;
                }
            }
        }
    }
    Ok(pieces)
}

/// Why a stage's chips cannot hold the activations that are kept in this order of passes. What the plan keeps is counted, less one layer that it counts
/// among the tensors at work: a bound from below.
pub(super) fn refusal(plan: &Plan, order: &Order, microbatches: u64) -> Option<String> {
    let capacity = plan.system.memory.0.capacity?.0;
    let m = microbatches as f64;
    let planned = Order { schedule: crate::execution::Schedule::OneForwardOneBackward, ..*order };
    (0..).zip(&plan.figures.stages).find_map(|(stage, s)| {
        let more = (order.in_flight(stage, m) / planned.in_flight(stage, m).max(1.0) - 1.0).max(0.0);
        let need = s.memory.total() + s.memory.activations * more;
        (more > 0.0 && need > capacity * (1.0 + 1e-6)).then(|| {
            format!(
                "in the schedule {} stage {stage} keeps activations of {:.1} microbatches and needs {} or more, the memory holds {}; the plan's \
                 1f1b keeps those of {:.1} and needs {}",
                order.schedule,
                order.in_flight(stage, m),
                Bytes(need),
                Bytes(capacity),
                planned.in_flight(stage, m),
                Bytes(s.memory.total()),
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::Schedule;

    fn cut(units: &[&[u64]], chunks: u64) -> Result<Vec<Vec<u64>>, String> {
        let order = Order { schedule: Schedule::Interleaved, stages: units.len() as u64, chunks };
        let units: Vec<Vec<u64>> = units.iter().map(|u| u.to_vec()).collect();
        let blocks = units.first().map_or(0, Vec::len);
        let repeats: Vec<u64> = (0..blocks).map(|b| units.iter().map(|u| u[b]).sum()).collect();
        let names: Vec<String> = (0..blocks).map(|b| format!("b{b}")).collect();
        of_stages(units, &repeats, &names, &order)
    }

    #[test]
    fn a_stage_is_cut_into_chunks() {
        // Embedding, five layers on two stages, head.
        let pieces = cut(&[&[1, 2, 0], &[0, 3, 1]], 2).unwrap();
        assert_eq!(pieces, [[1, 1, 0], [0, 2, 0], [0, 1, 0], [0, 1, 1]]);
        assert_eq!(cut(&[&[5], &[4]], 3).unwrap(), [[1], [2], [2], [1], [2], [1]]);
        assert!(
            cut(&[&[1], &[1]], 2).unwrap_err().contains("stage 0 has 1 repetitions of \"b0\", fewer than 2 chunks")
        );
        // Two blocks of layers: a stage of the other one alone cannot be cut.
        assert!(cut(&[&[4, 0], &[2, 1], &[0, 3]], 2).unwrap_err().contains("stage 2 has 0 repetitions of \"b0\""));
    }
}
