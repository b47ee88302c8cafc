//! The system file: chip, memory, network, prices, overlap and the model's options.

use super::known::Family;
use super::schema::Generation;
use super::setup::{Dim, Setup};
use super::tree::Fault;
use super::{Common, Note};
use crate::model::divisors::divisors;
use crate::system::network::Arrangement;
use crate::system::options::Overlap;
use serde_json::{Map, Value as Json, json};

/// Bytes, written exactly where they are whole.
pub(super) fn bytes(value: f64) -> String {
    format!("{value} B")
}

/// The system file.
pub(super) fn tree(setup: &Setup, common: &Common, notes: &mut Vec<Note>, faults: &mut Vec<Fault>) -> Json {
    let s = &setup.system;
    let style = setup.settings.dataflow.unwrap_or_else(|| {
        notes.push(Note::assumed("execution_style", "dataflow"));
        true
    });
    let efficiency = match setup.settings.utilization {
        Some(u) => json!(shortest(u)),
        None => json!("lanes_stages"),
    };
    let mut price = Prices { notes };
    let [link_price, switch_price, dram_price, chip_price] = s.prices;
    let [switch_power, dram_power, chip_power] = s.powers;
    let [cores, lanes, stages] = s.cores;

    let mut chip = Part::new(s.names.1.as_deref().unwrap_or("chip"));
    chip.put("style", json!(if style { "dataflow" } else { "kernel_by_kernel" }));
    chip.number("cores", json!(cores));
    chip.number("lanes", json!(lanes));
    chip.number("stages", json!(stages));
    chip.number("frequency", json!(format!("{} GHz", s.frequency)));
    chip.number("sram", json!(bytes(f64::from(s.sram))));
    chip.number("efficiency", efficiency);
    price.put(&mut chip, "price", chip_price, "cost.accelerator_price", |x| format!("${x}"));
    price.put(&mut chip, "power", chip_power, "cost.accelerator_power", |x| format!("{x} W"));

    let mut memory = Part::new("memory");
    memory.number("bandwidth", json!(format!("{} GB/s", s.dram_bandwidth)));
    if let Some(capacity) = s.dram_capacity {
        memory.number("capacity", json!(bytes(f64::from(capacity))));
    }
    price.put(&mut memory, "price", dram_price, "cost.dram_unit_price", |x| format!("${x}/(GB/s)"));
    price.put(&mut memory, "power", dram_power, "cost.dram_unit_power", |x| format!("{x} W/(GB/s)"));

    let mut dimensions = Vec::new();
    let sizes = sizes(setup, faults);
    for (dim, size) in s.dims.iter().zip(&sizes) {
        let mut link = Part::new(&format!("link {}", dim.letter));
        link.number("bandwidth", json!(format!("{} GB/s", dim.bandwidth)));
        if let Some(latency) = s.latency {
            link.number("latency", json!(format!("{latency} ns")));
        }
        price.put(&mut link, "price", link_price, "cost.link_unit_price", |x| format!("${x}/(GB/s)"));
        let field = format!("cost.link_unit_power_{}", dim.letter);
        price.put(&mut link, "power", dim.power, &field, |x| format!("{x} W/(GB/s)"));
        let mut dimension = json!({ "size": size, "link": link.done(common) });
        if let (Arrangement::Custom, Some(map)) = (s.arrangement, dimension.as_object_mut()) {
            map.insert("topology".into(), json!("ring"));
        }
        dimensions.push(dimension);
    }
    let mut switch = Part::new("switch");
    price.put(&mut switch, "price", switch_price, "cost.switch_unit_price", |x| format!("${x}/(GB/s)"));
    price.put(&mut switch, "power", switch_power, "cost.switch_unit_power", |x| format!("{x} W/(GB/s)"));

    let overlap = setup.settings.overlap.unwrap_or_else(|| {
        notes.push(Note::assumed("overlap", "none"));
        Overlap::None
    });
    let mut network = json!({ "topology": s.arrangement, "dimensions": dimensions });
    if let (false, Some(map)) = (s.dims.is_empty(), network.as_object_mut()) {
        map.insert("switch".into(), switch.done(common));
    }
    json!({
        "name": s.names.0.clone().unwrap_or_else(|| common.name.clone()),
        "source": common.source,
        "chip": chip.done(common),
        "memory": memory.done(common),
        "network": network,
        "overlap": overlap,
        "model": model(setup),
    })
}

/// The options under which DFModel's generation computed (model.md, sections 2 and 5).
pub(super) fn model(setup: &Setup) -> Json {
    let mut model = Map::new();
    let mut put = |option: &str, value: Json| {
        model.insert(option.into(), value);
    };
    let (generation, family) = (setup.generation, Family::named(setup));
    let twice = matches!(generation, Generation::Miscellany | Generation::Parallel) || setup.settings.two_passes;
    put("preset", json!("dfmodel"));
    put("all_reduce_passes", json!(if twice { 2 } else { 1 }));
    if let Some(domain) = setup.system.domain {
        put("high_bandwidth_domain", json!(domain));
    }
    if setup.system.latency.is_some() {
        put("latencies", json!("charged"));
    }
    if generation <= Generation::Parallel {
        let traffic = if setup.settings.without_weights { "ignored" } else { "setup" };
        put("weight_traffic", json!(traffic));
    }
    if generation <= Generation::Parallel && generation > Generation::Flat && setup.settings.dataflow == Some(false) {
        put("crossing_buffers", json!(1));
    }
    if generation.is_first() {
        put("pipeline", json!("dfmodel_first"));
    }
    let streamed = setup.kernels.iter().any(|k| k.tiled_n || k.tiled_k);
    if !super::study::tied(generation) && streamed {
        put("tile_counts", json!("any"));
    }
    // Of an odd number of partitions the passes share the middle one.
    let passes = setup.kernels.iter().any(|k| k.backward) && setup.kernels.iter().any(|k| !k.backward);
    let together = setup.settings.partitions.is_some_and(|most| !most.is_multiple_of(2));
    if passes && together && setup.settings.dataflow.unwrap_or(true) {
        put("phases", json!("together"));
    }
    match family {
        Some(Family::Dlrm) if generation.is_first() => put("gradient_reduction", json!("ignored")),
        Some(Family::Dlrm) => put("gradient_link", json!("byte_per_ns")),
        Some(Family::Hpl | Family::Fft) => put("sram_limit", json!("ignored")),
        _ => {}
    }
    let all_to_all = matches!(family, Some(Family::Dlrm | Family::Fft));
    if all_to_all && matches!(generation, Generation::PerfectOverlap | Generation::Overlap) {
        put("all_to_all_messages", json!("pairs"));
    } else if squared(setup) {
        put("all_to_all_messages", json!("squared"));
    }
    Json::Object(model)
}

/// Whether the all-to-all counts N^2 messages: the stored runs of Fourier transforms in words of 4 B, which compare with published ones, do, and
/// those in words of 2 B count N^2/4, with nothing else to tell them apart.
pub(super) fn squared(setup: &Setup) -> bool {
    setup.generation == Generation::Miscellany
        && Family::named(setup) == Some(Family::Fft)
        && setup.settings.word == Some(4)
}

/// Most divisions of chips among dimensions that are written as points of a study.
pub(super) const MAX_DIVISIONS: usize = 200;

/// Sizes of the dimensions. One that was left to DFModel's solver follows from the others; of several, some division that
/// gives the number of chips (the study's axis has them all).
pub(super) fn sizes(setup: &Setup, faults: &mut Vec<Fault>) -> Vec<u64> {
    let s = &setup.system;
    let shown = || -> String {
        let parts: Vec<String> = s
            .dims
            .iter()
            .map(|d| format!("{} {}", d.letter, d.size.map_or("free".into(), |n| n.to_string())))
            .collect();
        if parts.is_empty() { "a single chip".into() } else { parts.join(", ") }
    };
    let known: Option<u64> = s.dims.iter().filter_map(|d| d.size).try_fold(1u64, u64::checked_mul);
    let free = s.dims.iter().filter(|d| d.size.is_none()).count();
    let copies = known.filter(|k| *k > 0).and_then(|k| s.chips.is_multiple_of(k).then_some(s.chips / k));
    match (copies, free) {
        (Some(1), _) => {}
        (Some(_), 1..) => {}
        _ => {
            let text = format!("{} chips, but the dimensions are {}", s.chips, shown());
            faults.push(Fault::at(s.place, "system.num_chip", text));
        }
    }
    let divisions = divisions(copies.unwrap_or(1), free, MAX_DIVISIONS);
    let mut chosen = divisions.get(divisions.len() / 2).cloned().unwrap_or_default().into_iter();
    s.dims.iter().map(|d| d.size.unwrap_or_else(|| chosen.next().unwrap_or(1))).collect()
}

/// Every way to write `n` as a product of `parts` factors, in order; the first `most` and one if there are more.
pub(super) fn divisions(n: u64, parts: usize, most: usize) -> Vec<Vec<u64>> {
    match parts {
        0 => Vec::new(),
        1 => vec![vec![n]],
        _ => {
            let mut found = Vec::new();
            for d in divisors(n) {
                for mut rest in divisions(n / d, parts - 1, most) {
                    rest.insert(0, d);
                    found.push(rest);
                    if found.len() > most {
                        return found;
                    }
                }
            }
            found
        }
    }
}

/// A 32-bit number as a 64-bit one with the same decimals: 0.9, not 0.899999976.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| f64::from(x))
}

/// A part of the system: its fields, and which of its numbers were assumed.
struct Part {
    name: String,
    fields: Vec<(String, Json)>,
    numbers: Vec<(String, Option<String>)>,
}

impl Part {
    fn new(name: &str) -> Self {
        Self { name: name.into(), fields: Vec::new(), numbers: Vec::new() }
    }

    fn put(&mut self, field: &str, value: Json) {
        self.fields.push((field.into(), value));
    }

    fn number(&mut self, field: &str, value: Json) {
        self.put(field, value);
        self.numbers.push((field.into(), None));
    }

    /// The part's tree: one source, or one a number where some were assumed.
    fn done(self, common: &Common) -> Json {
        let mut out = Map::new();
        out.insert("name".into(), json!(self.name));
        let source = if self.numbers.iter().all(|(_, assumed)| assumed.is_none()) {
            json!(common.source)
        } else {
            let each = self
                .numbers
                .into_iter()
                .map(|(field, assumed)| (field, json!(assumed.unwrap_or_else(|| common.source.clone()))));
            Json::Object(each.collect())
        };
        out.insert("source".into(), source);
        out.extend(self.fields);
        Json::Object(out)
    }
}

/// Prices and powers: zero, and said so, where the file has none.
struct Prices<'n> {
    notes: &'n mut Vec<Note>,
}

impl Prices<'_> {
    fn put(&mut self, part: &mut Part, field: &str, value: Option<f32>, theirs: &str, write: impl Fn(f32) -> String) {
        part.number(field, json!(write(value.unwrap_or(0.0))));
        if value.is_none() {
            if let Some((_, assumed)) = part.numbers.last_mut() {
                *assumed = Some(format!("assumed: 0, since {theirs} is not in the file"));
            }
            let note = Note::assumed(theirs, "0");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// How a dimension is named in messages.
pub(super) fn dim_name(dim: &Dim) -> String {
    format!("par_{}", dim.letter)
}
