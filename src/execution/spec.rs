//! An execution as a file states it: degrees of parallelism, microbatch, schedule, recomputation, sharding of the training
//! state, offload and overlap. It says how; the workload says what, the system on which.
//!
//! Definitions. Chips = tp x pp x dp x cp; the expert group ep lies inside dp x cp (experts are divided among chips that would
//! otherwise be replicas), so it takes no chips of its own. A pipeline stage holds `chunks` pieces of layers (interleaving,
//! Narayanan et al. 2021, arXiv 2104.04473). `zero` counts as in Rajbhandari et al. 2019 (arXiv 1910.02054): 1 divides the
//! optimiser states among the data-parallel replicas, 2 the gradients too, 3 the weights too (FSDP).

use crate::spec::{Node, Reader};

crate::choice! {
    /// The order in which a pipeline stage takes the passes of its microbatches.
    pub enum Schedule ("a pipeline schedule") {
        /// All forward passes, then all backward passes: activations of every microbatch are kept.
        GPipe = "gpipe",
        /// One forward, one backward: activations of at most `pp` microbatches are kept.
        OneForwardOneBackward = "1f1b",
        /// 1F1B over `chunks` pieces a stage: the bubble is divided by `chunks`, hand-overs are multiplied by it.
        Interleaved = "interleaved",
        /// Backward passes divided in two, weight gradients fill the bubble (Qi et al. 2023, arXiv 2401.10241).
        ZeroBubble = "zero_bubble",
    }
}

crate::choice! {
    /// What the backward pass computes again instead of keeping it.
    pub enum Recompute ("a policy of recomputation") {
        /// Nothing: every activation is kept.
        None = "none",
        /// The attention core, from scores to values (Korthikanti et al. 2022, arXiv 2205.05198).
        Selective = "selective",
        /// Whole layers: only the input of each is kept.
        Full = "full",
    }
}

crate::choice! {
    /// How much of the training state is divided among the data-parallel replicas.
    pub enum Zero ("a stage of ZeRO") {
        /// Nothing: every replica has all of it.
        Off = "0",
        /// Optimiser states (distributed optimiser).
        Optimizer = "1",
        /// Optimiser states and gradients.
        Gradients = "2",
        /// Optimiser states, gradients and weights (FSDP).
        Weights = "3",
    }
}

crate::choice! {
    /// What lies in the second memory tier while it is not used.
    pub enum Offload ("what is offloaded") {
        /// Nothing.
        None = "none",
        /// Optimiser states.
        Optimizer = "optimizer",
        /// Activations kept for the backward pass.
        Activations = "activations",
        /// Weights, beside the optimiser states.
        Weights = "weights",
        /// Weights, their gradients and optimiser states: the second tier adds gradients up, and chips hold what is at work (weight streaming).
        State = "state",
        /// Weights, optimiser states and activations.
        All = "all",
        /// All, and whatever waits between two partitions: where the chip's own memory is its SRAM, partitions have all of that, and the second tier is the memory.
        Streamed = "streamed",
    }
}

impl Offload {
    /// What a search of executions has to choose from; `streamed` is a search by itself (`mapping::executions`).
    pub fn tried() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|offload| *offload != Self::Streamed)
    }

    /// Whether optimiser states are in the second tier.
    pub fn has_optimizer(self) -> bool {
        matches!(self, Self::Optimizer | Self::Weights | Self::State | Self::All)
    }

    /// Whether weights are.
    pub fn has_weights(self) -> bool {
        matches!(self, Self::Weights | Self::State | Self::All)
    }

    /// Whether activations that are kept are.
    pub fn has_activations(self) -> bool {
        matches!(self, Self::Activations | Self::All)
    }
}

crate::spec! {
    /// How a workload is executed.
    pub struct Execution ("an execution", check: check) {
        /// Tensor parallelism: chips that share each layer.
        tp: u64 = 1,
        /// Pipeline parallelism: stages.
        pp: u64 = 1,
        /// Data parallelism: replicas.
        dp: u64 = 1,
        /// Expert parallelism: groups among which the experts of a layer are divided; lies inside dp x cp.
        ep: u64 = 1,
        /// Context parallelism: chips that share the tokens of a sequence.
        cp: u64 = 1,
        /// Samples of one microbatch of one replica.
        micro_batch: u64 = 1,
        /// Order of the passes.
        schedule: Schedule = Schedule::OneForwardOneBackward,
        /// Pieces of layers a stage holds (virtual stages); above 1 only where the schedule is interleaved.
        chunks: u64 = 1,
        /// What is computed again.
        recompute: Recompute = Recompute::None,
        /// Whether norms, dropouts and residuals are divided by tokens among the tensor-parallel chips (reduce-scatter and
        /// all-gather instead of all-reduce).
        sequence_parallel: bool = false,
        /// How much of the training state is divided among the replicas.
        zero: Zero = Zero::Off,
        /// What lies in the second memory tier.
        offload: Offload = Offload::None,
        /// Whether the reduction of gradients runs beside the backward pass.
        overlap_dp: bool = false,
        /// Whether tensor-parallel collectives run beside the products next to them.
        overlap_tp: bool = false,
    }
}

/// Degrees beyond this are slips of the keyboard; their product stays far inside a `u64`.
const MAX_DEGREE: u64 = 1 << 12;

fn check(execution: &Execution, node: &Node, reader: &mut Reader) {
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    for (field, value, most) in [
        ("tp", execution.tp, MAX_DEGREE),
        ("pp", execution.pp, MAX_DEGREE),
        ("dp", execution.dp, 1 << 20),
        ("ep", execution.ep, MAX_DEGREE),
        ("cp", execution.cp, MAX_DEGREE),
        ("micro_batch", execution.micro_batch, 1 << 20),
        ("chunks", execution.chunks, MAX_DEGREE),
    ] {
        if value > most {
            say(field, format!("expected at most {most}, found {value}"));
        }
    }
    let replicas = execution.dp.saturating_mul(execution.cp);
    if !replicas.is_multiple_of(execution.ep) {
        say("ep", format!("expected a divisor of dp x cp = {replicas}, found {}", execution.ep));
    }
    match (execution.schedule, execution.chunks) {
        (Schedule::Interleaved, 1) => say("chunks", "the schedule interleaved needs at least 2 chunks a stage".into()),
        (Schedule::Interleaved, _) if execution.pp == 1 => {
            say("schedule", "interleaved needs at least 2 pipeline stages, found pp = 1".into());
        }
        (Schedule::Interleaved, _) | (_, 1) => {}
        (other, chunks) => {
            say(
                "chunks",
                format!("expected 1 (only the schedule interleaved has more; this is {other}), found {chunks}"),
            );
        }
    }
    if execution.sequence_parallel && execution.tp == 1 {
        say("sequence_parallel", "needs tensor parallelism, found tp = 1".into());
    }
    if execution.overlap_tp && execution.tp == 1 {
        say("overlap_tp", "needs tensor parallelism, found tp = 1".into());
    }
}

impl Execution {
    /// Chips of the execution: tp x pp x dp x cp.
    pub fn chips(&self) -> u64 {
        self.tp.saturating_mul(self.pp).saturating_mul(self.dp).saturating_mul(self.cp)
    }

    /// Microbatches of one replica and iteration, or why the batch cannot be divided so.
    ///
    /// # Errors
    /// A sentence that says which division leaves a rest.
    pub fn microbatches(&self, global_batch: u64) -> Result<u64, String> {
        let samples = self.dp.saturating_mul(self.micro_batch).max(1);
        if global_batch == 0 || !global_batch.is_multiple_of(samples) {
            return Err(format!(
                "a global batch of {global_batch} is no multiple of dp x micro_batch = {} x {}",
                self.dp, self.micro_batch
            ));
        }
        Ok(global_batch / samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Execution, String> {
        let node = Node::parse("e.yaml", text).map_err(|e| e.to_string())?;
        Reader::read::<Execution>(&node).map_err(|e| e.to_string())
    }

    #[test]
    fn everything_has_a_default_of_one_chip() {
        let e = read("{tp: 1}").unwrap();
        assert_eq!((e.chips(), e.microbatches(7)), (1, Ok(7)));
        assert_eq!((e.schedule, e.zero, e.offload), (Schedule::OneForwardOneBackward, Zero::Off, Offload::None));
    }

    #[test]
    fn degrees_multiply_and_batches_divide() {
        let e = read("{tp: 8, pp: 8, dp: 4, cp: 2, ep: 8, micro_batch: 2, zero: 3, schedule: interleaved, chunks: 3}")
            .unwrap();
        assert_eq!(e.chips(), 512);
        assert_eq!(e.microbatches(64), Ok(8));
        assert!(e.microbatches(60).unwrap_err().contains("4 x 2"));
        assert_eq!(e.zero, Zero::Weights);
    }

    #[test]
    fn what_does_not_go_together_is_refused_all_at_once() {
        let errors =
            read("{tp: 1, pp: 1, dp: 4, ep: 3, chunks: 2, sequence_parallel: true, zero: 4, dq: 1}").unwrap_err();
        for part in ["zero: expected a stage of ZeRO: 0, 1, 2, 3", "dq: unknown key"] {
            assert!(errors.contains(part), "{errors}");
        }
        let errors = read("{dp: 4, ep: 3, chunks: 2, sequence_parallel: true}").unwrap_err();
        for part in ["ep: expected a divisor of dp x cp = 4", "chunks: expected 1", "sequence_parallel: needs tensor"] {
            assert!(errors.contains(part), "{errors}");
        }
        assert!(read("{schedule: interleaved, pp: 4}").unwrap_err().contains("at least 2 chunks"));
    }
}
