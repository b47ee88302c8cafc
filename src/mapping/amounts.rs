//! From decisions to the numbers of a fusion problem: what the kernels and tensors of a workload take on a system with degrees, sharding and tile count
//! chosen, first without bandwidths and latencies (`Amounts`), then with them ([`Instance`]).

use super::alone::Alone;
use super::degrees::Degrees;
use super::instance::{CAPACITY_TOLERANCE, Goal, Instance, KernelCost, TensorCost, UseCost};
use crate::model::collective;
use crate::model::compute::{
    self, Tiling, extra_dram, gradient_bytes, local, moved_bytes, pieces, problems, tensor_bytes, weight_bytes,
};
use crate::model::energy;
use crate::model::layout::{Layout, Strategy, conversion, produced, required};
use crate::model::rate::Rate;
use crate::model::schedule::{microbatches, samples_per_pass};
use crate::system::options::{Charge, Fanout, GradientReduction, Layouts, Overlap, Phases, WeightTraffic};
use crate::system::{ModelOptions, Style, System};
use crate::workload::{CollectiveKind, Phase, Workload};

/// What building an instance can find missing: of the kernels that do not fit even in pieces, the one that needs most.
#[derive(Debug, Clone, PartialEq)]
pub struct SramShort {
    /// The kernel.
    pub kernel: usize,
    /// Bytes it needs at least.
    pub needed: f64,
}

/// The decisions an instance is built for.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Degrees and groups.
    pub degrees: &'a Degrees,
    /// Strategy of each kernel.
    pub sharding: &'a [Strategy],
    /// Tile count.
    pub tiles: u64,
    /// Whether the weights of all layers of a stage, and their gradients, stay on chip for the whole iteration.
    pub weights_on_chip: bool,
    /// Layers of the longest stage.
    pub longest: u64,
}

/// A [`Choice`] without its network: all that decides the numbers of an instance that no bandwidth and no latency changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut<'a> {
    /// Chips of a tensor-parallel group, stages, replicas.
    pub(super) degrees: (u64, u64, u64),
    /// Strategy of each kernel.
    pub(super) sharding: &'a [Strategy],
    /// Tile count.
    pub(super) tiles: u64,
    /// Whether weights stay on chip.
    pub(super) weights_on_chip: bool,
    /// Layers of the longest stage.
    pub(super) longest: u64,
}

impl<'a> From<Choice<'a>> for Cut<'a> {
    fn from(Choice { degrees, sharding, tiles, weights_on_chip, longest }: Choice<'a>) -> Self {
        Self { degrees: (degrees.tp, degrees.pp, degrees.dp), sharding, tiles, weights_on_chip, longest }
    }
}

/// Builds the instance of a choice.
///
/// # Errors
/// [`SramShort`] when a kernel does not fit even alone with its weight in the smallest pieces.
pub fn build(workload: &Workload, system: &System, choice: Choice<'_>, live_limit: f64) -> Result<Instance, SramShort> {
    let rate = Rate::of(workload, system);
    let amounts = Amounts::of(workload, system, &rate, choice.into())?;
    Ok(amounts.priced(workload, (system, &rate), choice.degrees, live_limit))
}

/// The numbers of an instance that no bandwidth and no latency changes.
#[derive(Debug, Clone)]
pub(super) struct Amounts {
    /// The instance, without what [`Amounts::priced`] fills in.
    instance: Instance,
    /// What is moved between chips.
    charges: Vec<(usize, Moved)>,
    /// Bytes that each kernel loads before it begins, where that is not overlapped; else empty.
    setup_bytes: Vec<f64>,
    /// The partitions of a chip that runs kernel by kernel.
    pub(super) alone: Option<Alone>,
}

/// What a kernel moves between chips in one pass.
#[derive(Debug, Clone, Copy)]
enum Moved {
    /// The collectives that it makes by itself.
    Own,
    /// A collective of its tensor-parallel group, its bytes, and the passes in one of which it is made.
    Group(CollectiveKind, f64, f64),
    /// Bytes of its gradient, reduced among the replicas.
    Gradient(f64),
}

impl Moved {
    fn seconds(self, workload: &Workload, k: usize, degrees: &Degrees, options: &ModelOptions) -> f64 {
        match self {
            Self::Own => {
                let samples = samples_per_pass(workload, options);
                collective::own_seconds(&workload.kernels[k], &degrees.own, samples, options)
            }
            Self::Group(kind, bytes, passes) => collective::seconds(kind, &degrees.tp_group, bytes, options) / passes,
            Self::Gradient(bytes) => collective::gradient_seconds(&degrees.dp_group, bytes, options),
        }
    }

    fn joules(self, workload: &Workload, k: usize, degrees: &Degrees, options: &ModelOptions) -> f64 {
        match self {
            Self::Own => energy::own_j(&workload.kernels[k], &degrees.own, samples_per_pass(workload, options)),
            Self::Group(kind, bytes, passes) => energy::collective_j(kind, &degrees.tp_group, bytes) / passes,
            Self::Gradient(bytes) => energy::collective_j(CollectiveKind::AllReduce, &degrees.dp_group, bytes),
        }
    }
}

impl Amounts {
    /// The instance on a system's links and memory.
    pub(super) fn priced(
        &self,
        workload: &Workload,
        (system, rate): (&System, &Rate<'_>),
        degrees: &Degrees,
        live_limit: f64,
    ) -> Instance {
        let bandwidth = rate.dram_bytes_per_s;
        let mut instance = self.instance.clone();
        instance.live_limit = live_limit;
        instance.dram_bytes_per_s = bandwidth;
        instance.overlap = system.overlap();
        for (payer, seconds) in self.network_seconds(workload, degrees, &system.model) {
            instance.kernels[payer].network_s += seconds;
        }
        for (kernel, seconds) in instance.kernels.iter_mut().zip(self.setup_seconds(workload, bandwidth)) {
            kernel.serial_s = seconds;
        }
        instance
    }

    /// Kernels and the seconds of what they move between chips, in the order in which they are summed.
    pub(super) fn network_seconds(
        &self,
        workload: &Workload,
        degrees: &Degrees,
        options: &ModelOptions,
    ) -> impl Iterator<Item = (usize, f64)> {
        self.charges.iter().map(move |(payer, moved)| (*payer, moved.seconds(workload, *payer, degrees, options)))
    }

    /// Seconds that each kernel loads before it begins, where that is not overlapped; else none.
    pub(super) fn setup_seconds(&self, workload: &Workload, bandwidth: f64) -> impl Iterator<Item = f64> {
        let samples = workload.micro_batch as f64;
        self.setup_bytes.iter().map(move |bytes| bytes / (bandwidth * samples))
    }

    /// Joules of links that each kernel's collectives add on one chip, in one pass.
    pub(super) fn link_joules(&self, workload: &Workload, system: &System, degrees: &Degrees) -> Vec<f64> {
        link_joules_of(&self.charges, workload, system, degrees)
    }

    /// Kernels and tensors: what it takes to keep it.
    pub(super) fn size(&self) -> usize {
        self.instance.kernels.len() + self.instance.tensors.len() + self.charges.len()
    }

    /// The amounts of a cut.
    ///
    /// # Errors
    /// As [`build`].
    pub(super) fn of(workload: &Workload, system: &System, rate: &Rate<'_>, cut: Cut<'_>) -> Result<Self, SramShort> {
        let (chip, options) = (&system.chip.0, &system.model);
        let Cut { degrees: (t, _, dp), sharding, tiles, weights_on_chip, longest } = cut;
        let word = workload.word_bytes;
        let samples = samples_per_pass(workload, options);
        let passes = microbatches(workload, options, dp);
        let base_sram_bytes = if weights_on_chip { longest as f64 * held_for_good(workload, sharding, t) } else { 0.0 };
        let traffic = network_and_tensors(workload, options, cut, samples, rate.fills());
        let mut setup_bytes = Vec::new();

        let sram = rate.sram_bytes;

        let mut kernels: Vec<KernelCost> = workload
            .kernels
            .iter()
            .enumerate()
            .map(|(i, kernel)| {
                let strategy = sharding[i];
                let compute = rate.compute(kernel, strategy, t, tiles, samples);
                let weight = weight_bytes(kernel, strategy, t, word);
                let gradient = gradient_bytes(kernel, strategy, t, word);
                let extra = extra_dram(kernel, strategy, t, samples);
                let mut dram_bytes = extra;
                let mut resident_bytes = weight;
                match options.weight_traffic {
                    _ if weights_on_chip => {
                        // Loaded before the first pass of the iteration, gradients stored after the last.
                        let owned = if kernel.owns_weight() { weight } else { 0.0 };
                        dram_bytes += (owned + gradient) / passes;
                        resident_bytes = 0.0;
                    }
                    WeightTraffic::Streamed => {
                        let (weight, gradient) = moved_bytes(kernel, strategy, t, word);
                        dram_bytes += weight + 2.0 * gradient;
                        resident_bytes = weight + gradient;
                    }
                    WeightTraffic::Setup => {
                        // The weight once a microbatch, the rest with each pass.
                        setup_bytes.push(weight + extra * workload.micro_batch as f64);
                        dram_bytes = 0.0;
                    }
                    WeightTraffic::Ignored => {}
                }
                KernelCost {
                    compute,
                    network_s: 0.0,
                    serial_s: 0.0,
                    resident_bytes,
                    dram_bytes,
                    pieces: 1,
                    backward: kernel.phase != Phase::Forward,
                }
            })
            .collect();

        let mut tensors = traffic.tensors;
        if rate.chooses_tiles() {
            nothing_on_chip(&mut kernels, &mut tensors);
        }
        let mut short: Option<SramShort> = None;
        let alone = buffers_alone(&tensors, kernels.len());
        for (i, kernel) in kernels.iter_mut().enumerate() {
            let buffers = alone[i];
            let room = sram - base_sram_bytes - buffers;
            if kernel.resident_bytes <= room * (1.0 + CAPACITY_TOLERANCE) {
                continue;
            }
            // Smallest piece: one row of the weight (or of the gradient).
            let rows = local(&workload.kernels[i], sharding[i], t, Tiling::WHOLE).rows;
            let smallest = kernel.resident_bytes / rows as f64;
            if smallest > room {
                let needed = base_sram_bytes + buffers + smallest;
                if short.as_ref().is_none_or(|s| s.needed < needed) {
                    short = Some(SramShort { kernel: i, needed });
                }
                continue;
            }
            let of = &workload.kernels[i];
            let whole = local(of, sharding[i], t, Tiling::WHOLE);
            let (pieces, own) = pieces(kernel.resident_bytes, room, problems(of, &whole));
            kernel.pieces = pieces;
            kernel.resident_bytes /= pieces as f64;
            if options.weight_tiling == Charge::Charged {
                for tensor in &mut tensors {
                    for u in tensor.uses.iter_mut().filter(|u| u.kernel == i) {
                        let times = if u.own_part { own } else { pieces };
                        kernel.dram_bytes += (times - 1) as f64 * u.load_bytes;
                    }
                }
            }
        }
        if let Some(short) = short {
            return Err(short);
        }
        let both = options.phases == Phases::Apart
            && kernels.iter().any(|k| k.backward)
            && kernels.iter().any(|k| !k.backward);
        let instance = Instance {
            pins: vec![None; kernels.len()],
            kernels,
            tensors,
            sram_bytes: sram,
            base_sram_bytes,
            live_limit: f64::INFINITY,
            cores: chip.cores,
            dram_bytes_per_s: f64::INFINITY,
            overlap: Overlap::Full,
            partition_overhead_s: rate.launch_s,
            kernel_by_kernel: chip.style == Style::KernelByKernel,
            separate_phases: both,
            max_partitions: None,
            goal: Goal::TIME,
        };
        let alone = Alone::of(&instance);
        Ok(Self { instance, charges: traffic.charges, setup_bytes, alone })
    }
}

/// Where kernels choose their tiles by themselves, what is on chip is theirs: nothing of it is counted.
pub(super) fn nothing_on_chip(kernels: &mut [KernelCost], tensors: &mut [TensorCost]) {
    kernels.iter_mut().for_each(|kernel| kernel.resident_bytes = 0.0);
    for tensor in tensors {
        tensor.store_buffer = 0.0;
        tensor.uses.iter_mut().for_each(|u| (u.load_buffer, u.onchip_buffer) = (0.0, 0.0));
    }
}

/// Buffers of each kernel in a partition of its own: of each tensor the largest that it needs.
pub(super) fn buffers_alone(tensors: &[TensorCost], kernels: usize) -> Vec<f64> {
    let mut buffers = vec![0.0; kernels];
    for tensor in tensors {
        let stored = tensor.producer.filter(|_| tensor.output || !tensor.uses.is_empty());
        let store = stored.map(|k| (k, tensor.store_buffer));
        let mut needs: Vec<(usize, f64)> = tensor.uses.iter().map(|u| (u.kernel, u.load_buffer)).chain(store).collect();
        needs.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        needs.dedup_by_key(|need| need.0);
        needs.into_iter().for_each(|(kernel, bytes)| buffers[kernel] += bytes);
    }
    buffers
}

/// SRAM bytes of one layer's weights, each once however many kernels use it, and of their gradients.
fn held_for_good(workload: &Workload, sharding: &[Strategy], t: u64) -> f64 {
    let word = workload.word_bytes;
    workload
        .kernels
        .iter()
        .zip(sharding)
        .map(|(k, s)| {
            let owned = if k.owns_weight() { weight_bytes(k, *s, t, word) } else { 0.0 };
            owned + gradient_bytes(k, *s, t, word)
        })
        .sum()
}

/// Whether a chip could keep weights on chip for an iteration: only where kernels share it in space, and where their
/// traffic counts at all.
pub fn may_keep_weights(system: &System) -> bool {
    system.chip.0.style == Style::Dataflow && system.model.weight_traffic == WeightTraffic::Streamed
}

/// Joules of links that each kernel's collectives add on one chip, in one pass.
pub fn link_joules(workload: &Workload, system: &System, choice: Choice<'_>) -> Vec<f64> {
    let samples = samples_per_pass(workload, &system.model);
    let traffic = network_and_tensors(workload, &system.model, choice.into(), samples, false);
    link_joules_of(&traffic.charges, workload, system, choice.degrees)
}

fn link_joules_of(charges: &[(usize, Moved)], workload: &Workload, system: &System, degrees: &Degrees) -> Vec<f64> {
    let mut link_j = vec![0.0; workload.kernels.len()];
    for (payer, moved) in charges {
        link_j[*payer] += moved.joules(workload, *payer, degrees, &system.model);
    }
    link_j
}

struct Traffic {
    /// What is moved between chips, and the kernel that pays, in the order in which it is summed.
    charges: Vec<(usize, Moved)>,
    tensors: Vec<TensorCost>,
}

/// Collectives by kernel, and sizes of tensors in their layouts; lags of readers where pipelines of tiles fill.
fn network_and_tensors(
    workload: &Workload,
    options: &ModelOptions,
    cut: Cut<'_>,
    samples: f64,
    fills: bool,
) -> Traffic {
    let Cut { degrees: (t, _, dp), sharding, tiles, .. } = cut;
    let word = workload.word_bytes;
    let rules = options.layouts;
    let tiling = Tiling::new(tiles, options);
    let mut charges: Vec<(usize, Moved)> = Vec::new();
    let in_group = |kind, bytes: f64, passes: f64| Moved::Group(kind, bytes * samples, passes);
    let levels = workload.levels();

    for (i, kernel) in workload.kernels.iter().enumerate() {
        if !kernel.collectives.is_empty() {
            charges.push((i, Moved::Own));
        }
        let here = local(kernel, sharding[i], t, tiling);
        if rules == Layouts::Dfmodel && sharding[i] == Strategy::K {
            let passes_over_tiles = if kernel.tiled == crate::workload::Axis::K { 1.0 } else { here.tiles as f64 };
            let bytes = here.rows as f64 * here.n as f64 * kernel.word_or(word) * passes_over_tiles;
            charges.push((i, in_group(CollectiveKind::AllReduce, bytes, 1.0)));
        }
        if workload.training && options.gradient_reduction == GradientReduction::PerMicrobatch {
            let gradient = gradient_bytes(kernel, sharding[i], t, word);
            charges.push((i, Moved::Gradient(gradient / microbatches(workload, options, dp))));
        }
    }

    // What the next layer reads of each tensor.
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); workload.tensors.len()];
    for (id, tensor) in workload.tensors.iter().enumerate() {
        if let Some(from) = tensor.carried_from {
            next[from].push(id);
        }
    }
    let mut tensors = Vec::new();
    for (id, tensor) in workload.tensors.iter().enumerate() {
        if !options.counts(tensor) {
            continue;
        }
        // An input that is carried arrives as its reader wants it; the writer converts it.
        let made = tensor.producer.map(|p| produced(sharding[p], rules));
        let wanted =
            |u: &crate::workload::Use| required(&workload.kernels[u.kernel], u.slot, sharding[u.kernel], rules);
        let full = tensor.bytes(word);
        let (made_bytes, made_tile) = tensor_bytes(tensor, made.unwrap_or(Layout::Replicated), t, tiling, word);

        // Conversions: each layout once, charged to the producer; to the first reader where that is in another phase.
        let mut paid: Vec<(bool, Layout)> = Vec::new();
        if let (Some(from), Some(p)) = (made, tensor.producer) {
            let carried = next[id].iter().flat_map(|c| &workload.tensors[*c].consumers);
            let boundary_uses = carried.filter(|_| options.boundary_tensors == Charge::Charged).map(|u| (u, true));
            // Another block converts, or is converted for, once a microbatch, and takes what is there already.
            let block = |k: usize| workload.kernels[k].block;
            let inside = tensor.consumers.iter().filter(|u| block(u.kernel) == block(p)).map(|u| (u, false));
            let across = tensor.consumers.iter().filter(|u| block(u.kernel) != block(p)).map(|u| (u, false));
            for (u, next_layer) in inside.chain(boundary_uses).chain(across) {
                let to = wanted(u);
                let other_phase = (workload.kernels[p].phase == Phase::Forward)
                    != (workload.kernels[u.kernel].phase == Phase::Forward);
                let crosses = !next_layer && block(u.kernel) != block(p);
                let fewer = workload.repeats(block(u.kernel)) <= workload.repeats(block(p));
                // What goes to another repetition or block is converted for the pass that made it, whichever reads it there.
                let at_producer = next_layer || crosses || !other_phase;
                let payer = if !at_producer || (crosses && fewer) { u.kernel } else { p };
                let share = if crosses { workload.repeats(block(payer)) as f64 } else { 1.0 };
                let shared = options.tensor_fanout == Fanout::Shared;
                if shared && paid.contains(&(at_producer, to)) {
                    continue;
                }
                paid.push((at_producer, to));
                if let Ok(Some(kind)) = conversion(from, to) {
                    let bytes = match (rules, kind) {
                        (Layouts::Dfmodel, _) | (_, CollectiveKind::AllToAll) => made_bytes,
                        _ => full,
                    };
                    charges.push((payer, in_group(kind, bytes, share)));
                }
            }
        }

        let whole = options.stationary_operands == Charge::Charged;
        let added_up = whole && tensor.producer.is_some_and(|p| workload.kernels[p].accumulates);
        let mut store_bytes = stored_bytes(workload, cut, options, (id, &next[id]), made_bytes, samples);
        let uses: Vec<UseCost> = tensor
            .consumers
            .iter()
            .map(|u| {
                let consumer = &workload.kernels[u.kernel];
                let (bytes, tile) = match rules {
                    Layouts::Dfmodel => (made_bytes, made_tile),
                    Layouts::Flowspace => tensor_bytes(tensor, wanted(u), t, tiling, word),
                };
                let level = tensor.producer.map_or(0, |p| levels[p]);
                let depth = levels[u.kernel].abs_diff(level) as f64 + 1.0;
                let streamed = consumer.streamed();
                let stationary = whole && streamed == crate::workload::Axis::N && u.slot.is_stationary();
                let needed_whole = whole && u.slot.is_whole_on_chip(streamed);
                let whole_on_chip = needed_whole || added_up;
                UseCost {
                    kernel: u.kernel,
                    // A reader of another phase loads what was stored and converts it then.
                    load_bytes: if tensor.producer.is_some() {
                        (bytes * samples).min(store_bytes)
                    } else {
                        bytes * samples
                    },
                    load_buffer: if stationary { bytes } else { options.crossing_buffers as f64 * tile },
                    onchip_buffer: if whole_on_chip { bytes.max(depth * tile) } else { depth * tile },
                    lag: tensor
                        .producer
                        .filter(|_| fills)
                        .map_or(0.0, |p| compute::lag(&workload.kernels[p], needed_whole, (bytes, tile), samples)),
                    own_part: compute::has_own_part(consumer, u.slot),
                }
            })
            .collect();
        let output = tensor.output && options.boundary_tensors == Charge::Charged;
        if tensor.producer.is_none() {
            // An input lies in DRAM as its widest reader wants it.
            store_bytes = uses.iter().map(|u| u.load_bytes).fold(0.0, f64::max);
        }
        let live_bytes = if tensor.in_place { 0.0 } else { store_bytes / samples * workload.micro_batch as f64 };
        let cost = TensorCost {
            producer: tensor.producer,
            output,
            store_bytes,
            store_buffer: if added_up { made_bytes } else { options.crossing_buffers as f64 * made_tile },
            live_bytes,
            uses,
        };
        match options.tensor_fanout {
            Fanout::Shared => tensors.push(cost),
            Fanout::Replicate => {
                for u in &cost.uses {
                    tensors.push(TensorCost { output: false, uses: vec![u.clone()], ..cost.clone() });
                }
                if cost.output {
                    tensors.push(TensorCost { uses: Vec::new(), ..cost });
                }
            }
        }
    }
    Traffic { charges, tensors }
}

/// Bytes of a tensor as it is stored: in the largest layout that its readers want (conversions come before the store,
/// except for readers of another phase, or of another block that pays for itself), or as made when nobody reads it.
fn stored_bytes(
    workload: &Workload,
    cut: Cut<'_>,
    options: &ModelOptions,
    (id, next): (usize, &[usize]),
    made_bytes: f64,
    samples: f64,
) -> f64 {
    let word = workload.word_bytes;
    let tensor = &workload.tensors[id];
    let rules = options.layouts;
    if rules == Layouts::Dfmodel {
        return made_bytes * samples;
    }
    let Cut { degrees: (t, ..), sharding, tiles, .. } = cut;
    let carried = next.iter().flat_map(|c| &workload.tensors[*c].consumers);
    // A reader in a block that is repeated no more often than this converts after it has loaded.
    let repeats = |k: usize| workload.repeats(workload.kernels[k].block);
    let same_phase = tensor.consumers.iter().filter(|u| {
        tensor.producer.is_some_and(|p| {
            let (made, read) = (&workload.kernels[p], &workload.kernels[u.kernel]);
            (made.phase == Phase::Forward) == (read.phase == Phase::Forward)
                && (made.block == read.block || repeats(u.kernel) > repeats(p))
        })
    });
    let largest = same_phase
        .chain(carried)
        .map(|u| {
            let layout = required(&workload.kernels[u.kernel], u.slot, sharding[u.kernel], rules);
            compute::tensor_bytes(tensor, layout, t, Tiling::new(tiles, options), word).0
        })
        .fold(0.0, f64::max);
    samples * if largest > 0.0 { largest } else { made_bytes }
}
