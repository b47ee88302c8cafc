//! What a chip that runs kernel by kernel does with one kernel: the numbers behind
//! [`kernel_time`](crate::model::kernel_time). They belong to the chip and hold for every workload.

use super::source::{Source, check_sources};
use crate::spec::{
    Node, Problems, Reader,
    read::{Fraction, Share, Table},
};
use crate::units::{Bandwidth, FlopRate, Seconds, median};

crate::spec! {
    /// A piece of a product's result that one unit computes at a time.
    #[derive(Copy)]
    pub struct Tile ("a tile") {
        /// Rows of the result.
        rows: u64,
        /// Columns of the result.
        columns: u64,
        /// Rate at which a unit computes it, relative to the best tile.
        rate: Fraction = Fraction(1.0),
        /// Most parts among which the contracted dimension may be divided (a power of two): more tiles at once, for partial
        /// sums of 4 bytes that are written and read.
        splits: u64 = 1,
    }
}

crate::spec! {
    /// What single kernels and short steps reach: clocks and power budget of a chip that has not been at work for long.
    #[derive(Copy)]
    pub struct Burst ("single kernels") {
        /// Share of the peak that the best product reaches.
        efficiency: Fraction,
        /// The same in the batched products of attention.
        batched_efficiency: Fraction,
        /// Share of the memory's bandwidth that streaming kernels reach.
        memory_efficiency: Fraction,
        /// Share of the operands that is read before their products and not beside those of the tiles before.
        exposed_operands: Share = Share(0.0),
        /// Share of a result that is written after its products and not beside those of the next tiles.
        exposed_result: Share = Share(0.0),
        /// Time for each element of the contracted dimension that a unit waits for its operands: what bounds products with too few
        /// tiles to hide it.
        wait: Seconds = Seconds(0.0),
        /// Tiles that a unit holds at once to hide that wait.
        tiles_at_once: u64 = 1,
        /// Most rows of a product that runs as products of vectors, whose units fill no tiles and do not wait so.
        vector_rows: u64 = 0,
        /// Bytes a second of operands that all units unpack, in squares of 32 x 32, partly beside their products; left out: wholly beside them.
        unpacking: Option<Bandwidth>,
    }
}

crate::spec! {
    /// A kernel that computes attention whole: blocks of queries against blocks of keys, scores kept on chip.
    #[derive(Copy)]
    pub struct FusedAttention ("a fused attention kernel") {
        /// Queries of a block.
        rows: u64 = 128,
        /// Keys of a block.
        columns: u64 = 128,
        /// Sizes of heads are padded to a multiple of this.
        head_step: u64 = 32,
        /// Share of the peak that the products of the forward pass reach.
        forward: Fraction,
        /// The same of the backward pass.
        backward: Fraction,
        /// Rate of the backward pass relative to that where gradients are added up in one order, each block waiting for the one before.
        ordered: Fraction = Fraction(0.7),
        /// Exponentials a second of the whole chip, one for each score; left out: they cost nothing.
        exponentials: Option<FlopRate>,
        /// Share of the exponentials (or of the products, where those are the shorter) that runs beside the other.
        hidden: Share = Share(0.0),
    }
}

crate::spec! {
    /// Kernels of a chip: tile and wave quantisation of products, traffic of vector work, launches.
    pub struct Kernels ("the kernels of a chip", complete: complete, check: check) {
        /// Where each number comes from.
        source: Source,
        /// Peak rate of products by data type (fp4, fp8, int8, fp16, bf16, fp32, fp64). `fp32` is what libraries multiply words of 32 bits at (TF32
        /// where a chip has it), `fp32_ieee` the same with all their bits, where that is slower.
        peak: Table<FlopRate>,
        /// Units that compute tiles side by side (streaming multiprocessors, matrix units): a wave is one tile on each.
        units: u64,
        /// Tiles among which the fastest is taken for each product.
        /// Left out: those of common libraries of products on tensor cores.
        tiles: Vec<Tile> = usual_tiles(),
        /// Best sustained share of the peak in a training step.
        /// Left out: the middle of the shipped chips, 0.68; where int8 is stated at four times the rate of 16 bits, whose rate is cut to half of what the units are fed for, 0.95.
        efficiency: Fraction => Fraction(0.0),
        /// The same by data type, where it differs.
        type_efficiency: Table<Fraction> = Table(Vec::new()),
        /// What libraries of products reach by data type, relative to that share, by their names; a stack's `product_library` takes one of them.
        libraries: Table<Table<f64>> = Table(Vec::new()),
        /// The same by data type in servers under steady load, whose weights are converted once; left out: what a training step sustains in that type.
        served_efficiency: Table<Fraction> = Table(Vec::new()),
        /// The same for the batched products of attention.
        batched_efficiency: Fraction = Fraction(0.5),
        /// Elements of which the size of a head and the tokens must be multiples for the batched products of attention to run at that share.
        vector: u64 = 1,
        /// Rate of those products relative to it where they are not.
        unaligned: Fraction = Fraction(1.0),
        /// Fused attention kernels by name; a stack's `attention_kernel` takes one of them. Left out: one at the share of batched products.
        fused_attention: Table<FusedAttention> = Table(Vec::new()),
        /// Time of a wave before its first product.
        fill: Seconds = Seconds(0.0),
        /// Share of the memory's bandwidth that kernels reach.
        memory_efficiency: Fraction = Fraction(0.8),
        /// Time of a kernel on the device beyond its work.
        launch: Seconds = Seconds(4e-6),
        /// Time that a kernel takes on the device besides its work, as profilers record kernels (not the time to the next, which `launch` holds).
        start: Seconds = Seconds(1.5e-6),
        /// What single kernels and the steps of inference reach, in every data type; left out: what a training step sustains.
        burst: Option<Burst>,
    }
}

/// The share of the peak where none is stated.
const USUAL: f64 = 0.68;

/// The same of chips whose rate of products in 16 bits is cut: their units have operands and power for twice as much (products of 2,048 to 16,384 reach 0.88 to 0.97 of the peak on RTX 2060,
/// 4090 and L20).
const OF_CUT: f64 = 0.95;

/// What a datasheet leaves out.
fn complete(kernels: &mut Kernels) {
    if kernels.efficiency.0 == 0.0 {
        kernels.efficiency = Fraction(if kernels.is_cut() { OF_CUT } else { USUAL });
    }
}

/// Tiles of a chip that does not state its own (NVIDIA, Matrix Multiplication Background User's Guide, 2020, names these sizes; rates assumed, as the H100's.
/// Of 16 and 32 rows: what keeps products of one row on RTX 3090 at its memory's rate).
fn usual_tiles() -> Vec<Tile> {
    let tile = |rows, columns, rate, splits| Tile { rows, columns, rate: Fraction(rate), splits };
    vec![
        tile(256, 128, 1.0, 4),
        tile(128, 256, 1.0, 4),
        tile(128, 128, 0.9, 4),
        tile(256, 64, 0.8, 4),
        tile(64, 256, 0.8, 4),
        tile(128, 64, 0.7, 1),
        tile(64, 128, 0.7, 1),
        tile(64, 64, 0.5, 1),
        tile(32, 128, 0.55, 4),
        tile(16, 128, 0.45, 4),
        // One row is multiplied by vector units, at the memory's pace on every chip.
        tile(1, 128, 0.1, 4),
    ]
}

/// Data types a peak may be given for.
const TYPES: [&str; 8] = ["fp4", "fp8", "int8", "fp16", "bf16", "fp32", "fp32_ieee", "fp64"];

/// The word of an attention core that no kernel runs.
pub const UNFUSED: &str = "unfused";

/// Beyond this a number of units, or an edge of a tile, is a slip of the keyboard.
const MOST: u64 = 1 << 24;

fn check(kernels: &Kernels, node: &Node, reader: &mut Reader) {
    let numbers = [
        "peak",
        "units",
        "tiles",
        "efficiency",
        "type_efficiency",
        "libraries",
        "served_efficiency",
        "batched_efficiency",
        "vector",
        "unaligned",
        "fused_attention",
        "fill",
        "memory_efficiency",
        "launch",
        "start",
        "burst",
    ];
    check_sources(&kernels.source, &numbers, node, reader);
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    for (word, rate) in &kernels.peak.0 {
        if !TYPES.contains(&word.as_str()) {
            say("peak", format!("expected data types among {}, found {word:?}", TYPES.join(", ")));
        }
        if rate.0 < 1.0 {
            say("peak", format!("{word}: expected at least 1 FLOP/s"));
        }
    }
    for (field, table) in
        [("type_efficiency", &kernels.type_efficiency), ("served_efficiency", &kernels.served_efficiency)]
    {
        for (word, _) in &table.0 {
            if !kernels.peak.0.iter().any(|(known, _)| known == word) {
                say(field, format!("{word}: the chip states no peak for it"));
            }
        }
    }
    for (name, factors) in &kernels.libraries.0 {
        for (word, factor) in &factors.0 {
            if !kernels.peak.0.iter().any(|(known, _)| known == word) {
                say("libraries", format!("{name}: {word}: the chip states no peak for it"));
            } else if !(1.0..=100.0).contains(factor) {
                say(
                    "libraries",
                    format!("{name}: {word}: expected 1 (the share that the chip states) to 100, found {factor}"),
                );
            }
        }
    }
    if kernels.peak.0.is_empty() {
        say("peak", format!("expected a rate for at least one of {}", TYPES.join(", ")));
    }
    if kernels.tiles.is_empty() {
        say("tiles", "expected at least one tile".into());
    }
    if kernels.burst.is_some_and(|b| b.tiles_at_once > MOST) {
        say("burst", format!("tiles_at_once: expected at most {MOST}"));
    }
    for (name, kernel) in &kernels.fused_attention.0 {
        if kernel.rows.max(kernel.columns).max(kernel.head_step) > MOST {
            say("fused_attention", format!("{name}: expected blocks and heads of at most {MOST}"));
        }
        if kernel.exponentials.is_some_and(|rate| rate.0 < 1.0) {
            say("fused_attention", format!("{name}: exponentials: expected at least 1 FLOP/s"));
        }
        if name == UNFUSED {
            say("fused_attention", format!("{name}: expected another name: this one is that of no kernel"));
        }
    }
    if kernels.units > MOST {
        say("units", format!("expected at most {MOST}, found {}", kernels.units));
    }
    for tile in &kernels.tiles {
        if tile.rows > MOST || tile.columns > MOST {
            say("tiles", format!("expected edges of at most {MOST}, found {} x {}", tile.rows, tile.columns));
        }
        if !tile.splits.is_power_of_two() || tile.splits > 64 {
            say("tiles", format!("splits: expected 1, 2, 4, ... 64, found {}", tile.splits));
        }
    }
}

impl Kernels {
    /// Whether products in 16 bits run at half of what the units are built for, as their sums in 32 bits are held back: int8 has then four times the rate, where it has twice on others.
    pub fn is_cut(&self) -> bool {
        let sixteen = self.peak_of("fp16").or_else(|| self.peak_of("bf16"));
        sixteen.zip(self.peak_of("int8")).is_some_and(|(of_words, of_bytes)| of_bytes >= 3.9 * of_words)
    }

    /// The same chip where its datasheet alone is known: peaks, units and tiles. Each share and time is the middle of what measurements gave
    /// of other chips of its `kind`, or of the `rest` where none of the kind was measured, and as where a file states none if there is no such chip.
    ///
    /// # Errors
    /// All [`Problems`] of the section without shares, of which there are none.
    pub fn of_datasheet(&self, kind: &[&Self], rest: &[&Self]) -> Result<Self, Problems> {
        let bare = "peak: { bf16: 1 TFLOP/s }\nunits: 1\nsource: \"derived: peaks, units and tiles of a datasheet\"\n";
        let mut new: Self = Reader::read(&Node::parse("datasheet", bare)?)?;
        (new.peak, new.units, new.tiles) = (self.peak.clone(), self.units, self.tiles.clone());
        let among = |chips: &[&Self], field: &str, value: &dyn Fn(&Self) -> Option<f64>| {
            median(chips.iter().filter(|k| k.source.is_measured(field)).filter_map(|k| value(k)).collect())
        };
        let of = |field: &str, value: &dyn Fn(&Self) -> Option<f64>| {
            among(kind, field, value).or_else(|| among(rest, field, value))
        };
        let share = |found: Option<f64>, usual: Fraction| found.map_or(usual, Fraction);
        // Of chips alike in this.
        let cut = self.is_cut();
        let usual = Fraction(if cut { OF_CUT } else { USUAL });
        new.efficiency = share(of("efficiency", &|k| (k.is_cut() == cut).then_some(k.efficiency.0)), usual);
        // Conversions and power make narrow types reach another share: of the kind alone, as it is a matter of its arithmetic and its libraries.
        for (word, _) in &self.peak.0 {
            let in_type = |table: &Table<Fraction>| table.0.iter().find(|(w, _)| w == word).map(|(_, share)| share.0);
            if let Some(found) = among(kind, "type_efficiency", &|k| in_type(&k.type_efficiency)) {
                new.type_efficiency.0.push((word.clone(), Fraction(found)));
            }
            if let Some(found) = among(kind, "served_efficiency", &|k| in_type(&k.served_efficiency)) {
                new.served_efficiency.0.push((word.clone(), Fraction(found)));
            }
        }
        new.batched_efficiency =
            share(of("batched_efficiency", &|k| Some(k.batched_efficiency.0)), new.batched_efficiency);
        new.memory_efficiency = share(of("memory_efficiency", &|k| Some(k.memory_efficiency.0)), new.memory_efficiency);
        new.fused_attention = Table(Self::usual_attention(kind, rest, self.units).into_iter().collect());
        new.launch = of("launch", &|k| Some(k.launch.0)).map_or(new.launch, Seconds);
        let burst =
            |value: fn(&Burst) -> Fraction| of("burst", &|k| k.burst.as_ref().map(|b| value(b).0)).map(Fraction);
        let usual = new.burst_of("bf16");
        new.burst = Some(Burst {
            efficiency: burst(|b| b.efficiency).unwrap_or(usual.efficiency),
            batched_efficiency: burst(|b| b.batched_efficiency).unwrap_or(usual.batched_efficiency),
            memory_efficiency: burst(|b| b.memory_efficiency).unwrap_or(usual.memory_efficiency),
            ..usual
        });
        Ok(new)
    }

    /// A fused attention kernel with the middle of the shares that the first kernels of other chips reach, and as many exponentials a unit.
    fn usual_attention(kind: &[&Self], rest: &[&Self], units: u64) -> Option<(String, FusedAttention)> {
        let measured = |chips: &[&Self]| -> Vec<(FusedAttention, f64)> {
            let chips = chips.iter().filter(|k| k.source.is_measured("fused_attention"));
            chips.filter_map(|k| Some((k.fused_attention.0.first()?.1, k.units.max(1) as f64))).collect()
        };
        let known = Some(measured(kind)).filter(|known| !known.is_empty()).unwrap_or_else(|| measured(rest));
        let of =
            |value: &dyn Fn(&(FusedAttention, f64)) -> Option<f64>| median(known.iter().filter_map(value).collect());
        let first = known.first()?.0;
        let kernel = FusedAttention {
            forward: Fraction(of(&|(k, _)| Some(k.forward.0))?),
            backward: Fraction(of(&|(k, _)| Some(k.backward.0))?),
            exponentials: of(&|(k, n)| k.exponentials.map(|e| e.0 / n)).map(|each| FlopRate(each * units as f64)),
            hidden: Share(of(&|(k, _)| Some(k.hidden.0))?),
            ..first
        };
        Some(("usual".into(), kernel))
    }

    /// Best sustained share of the peak in a data type.
    pub fn efficiency_of(&self, word: &str) -> f64 {
        let stated = self.type_efficiency.0.iter().find(|(w, _)| w == word);
        stated.map_or(self.efficiency, |(_, share)| *share).0
    }

    /// The same with a library of products: as the chip states where it has none of that name, or the library says nothing of the type.
    pub fn efficiency_with(&self, word: &str, library: Option<&str>) -> f64 {
        let stated = self.libraries.0.iter().find(|(name, _)| Some(name.as_str()) == library);
        let factor = stated.and_then(|(_, factors)| factors.0.iter().find(|(w, _)| w == word));
        (self.efficiency_of(word) * factor.map_or(1.0, |(_, factor)| *factor)).min(1.0)
    }

    /// The same with whichever library reaches most.
    pub fn best_efficiency_of(&self, word: &str) -> f64 {
        let named = self.libraries.0.iter().map(|(name, _)| self.efficiency_with(word, Some(name)));
        named.fold(self.efficiency_of(word), f64::max)
    }

    /// The same in servers under steady load.
    pub fn served_efficiency_of(&self, word: &str) -> f64 {
        let stated = self.served_efficiency.0.iter().find(|(w, _)| w == word);
        stated.map_or_else(|| self.efficiency_of(word), |(_, share)| share.0)
    }

    /// The fused attention kernel of that name, or the first where the chip has none of it or none is asked for.
    pub fn fused_attention_of(&self, name: Option<&str>) -> Option<&FusedAttention> {
        let list = &self.fused_attention.0;
        list.iter().find(|(known, _)| Some(known.as_str()) == name).or(list.first()).map(|(_, kernel)| kernel)
    }

    /// What single kernels in a data type reach: as stated, for all types alike, or what a training step sustains in that type.
    pub fn burst_of(&self, word: &str) -> Burst {
        self.burst.unwrap_or(Burst {
            efficiency: Fraction(self.efficiency_of(word)),
            batched_efficiency: self.batched_efficiency,
            memory_efficiency: self.memory_efficiency,
            exposed_operands: Share(0.0),
            exposed_result: Share(0.0),
            wait: Seconds(0.0),
            tiles_at_once: 1,
            vector_rows: 0,
            unpacking: None,
        })
    }

    /// Peak rate of a data type by its word, in FLOP/s.
    pub fn peak_of(&self, word: &str) -> Option<f64> {
        self.peak.0.iter().find(|(w, _)| w == word).map(|(_, rate)| rate.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three chips the two with measured shares count: 0.5 and 0.7, the middle 0.6; launches were measured of none.
    /// INT8 at four times the rate of 16 bits says that this is cut to half; stated shares stay.
    #[test]
    fn a_cut_rate_is_reached_nearly_whole() {
        let read = |peak: &str, more: &str| -> Kernels {
            let text = format!("peak: {{ {peak} }}\nunits: 7\n{more}source: \"datasheet: it\"\n");
            Reader::read(&Node::parse("k.yaml", &text).unwrap()).unwrap()
        };
        let (cut, whole) = ("fp16: 71 TFLOP/s, int8: 284 TFLOP/s", "fp16: 142 TFLOP/s, int8: 284 TFLOP/s");
        assert_eq!((read(cut, "").efficiency.0, read(whole, "").efficiency.0), (0.95, 0.68));
        assert_eq!(read(cut, "efficiency: 0.7\n").efficiency.0, 0.7);
        assert_eq!(read("fp16: 71 TFLOP/s", "").efficiency.0, 0.68);
        let new = read(cut, "").of_datasheet(&[], &[&read(whole, "efficiency: 0.5\n")]).unwrap();
        assert_eq!(new.efficiency.0, 0.95);
    }

    #[test]
    fn a_new_chip_has_the_middle_of_the_measured_ones() {
        let chip = |efficiency: f64, source: &str| -> Kernels {
            let text = format!(
                "peak: {{ bf16: 10 TFLOP/s }}\nunits: 7\nefficiency: {efficiency}\nlaunch: 9 us\ntype_efficiency: {{ bf16: 0.9 }}\n\
                 source: {{ peak: \"datasheet: it\", units: \"datasheet: it\", type_efficiency: \"assumed: it\", launch: \"assumed: it\", \
                 efficiency: \"{source}: it\" }}\n"
            );
            Reader::read(&Node::parse("k", &text).unwrap()).unwrap()
        };
        let (a, b, c) = (chip(0.5, "calibrated"), chip(0.7, "measured"), chip(0.1, "assumed"));
        let new = c.of_datasheet(&[&a, &b, &c], &[]).unwrap();
        assert_eq!((new.units, new.peak_of("bf16"), new.efficiency_of("bf16")), (7, Some(10e12), 0.6));
        assert_eq!((new.launch.0, new.burst_of("bf16").efficiency.0), (4e-6, 0.6));
        assert_eq!(c.of_datasheet(&[&c], &[]).unwrap().efficiency.0, 0.68);
        // Of its kind first, of the rest where none of the kind was measured.
        assert_eq!(c.of_datasheet(&[&b], &[&a]).unwrap().efficiency.0, 0.7);
        assert_eq!(c.of_datasheet(&[&c], &[&a]).unwrap().efficiency.0, 0.5);
    }
}
