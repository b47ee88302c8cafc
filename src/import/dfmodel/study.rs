//! The settings of a run as a study of two points, DFModel's formulas and ours, and the mapping of a file that DFModel's
//! passes have filled in as a plan.

use super::known::Family;
use super::schema::Generation;
use super::setup::{Form, Kernel, Setup, Workload};
use super::system::{MAX_DIVISIONS, dim_name, divisions, model, sizes};
use super::tree::Fault;
use super::{Common, Note};
use crate::model::Strategy;
use crate::plan::DimensionUse;
use serde_json::{Map, Value as Json, json};

/// Orders of parallelism that DFModel accepts, innermost dimension first.
const ORDERS: [&[&str]; 7] =
    [&["TP"], &["PP"], &["DP"], &["TP", "PP"], &["TP", "DP"], &["PP", "DP"], &["TP", "PP", "DP"]];

/// What each dimension serves, if the file says so, or its generation does.
fn parallelism(setup: &Setup, notes: &mut Vec<Note>, faults: &mut Vec<Fault>) -> Option<Vec<String>> {
    let dims = &setup.system.dims;
    let stated: Vec<Option<&String>> = dims.iter().map(|d| d.par.as_ref()).collect();
    if stated.iter().all(Option::is_none) {
        if setup.generation.is_first() && matches!(setup.settings.workload, Workload::Llm(_)) && !dims.is_empty() {
            let order: Vec<String> = ["TP", "PP", "DP"].iter().take(dims.len()).map(|w| w.to_string()).collect();
            let text = format!("{}, as these generations do with the dimensions in their order", order.join(", "));
            notes.push(Note::assumed("parallelism of the dimensions", text));
            return Some(order);
        }
        return None;
    }
    let at = setup.system.network_place;
    let missing: Vec<String> = dims.iter().filter(|d| d.par.is_none()).map(dim_name).collect();
    if !missing.is_empty() {
        let text = format!("{} is missing; either every dimension says what it serves or none", missing.join(", "));
        faults.push(Fault::at(at, "system", text));
        return None;
    }
    let words: Vec<String> = stated.into_iter().flatten().cloned().collect();
    let list = words.join(", ");
    if words.iter().any(|w| w == "SP") {
        let text = format!(
            "{list}; our search shards sequences within the tensor-parallel group and uses the dimensions as is best"
        );
        notes.push(Note::ignored("system: parallelism of the dimensions", Some(at), text));
        return None;
    }
    if !ORDERS.iter().any(|order| order.iter().copied().eq(words.iter().map(String::as_str))) {
        let text = format!("the dimensions serve {list}; expected TP, PP, DP in this order, each at most once");
        faults.push(Fault::at(at, "system", text));
        return None;
    }
    Some(words)
}

/// Degrees that no mapping of ours has: more stages than layers, more replicas than microbatches.
fn impossible(setup: &Setup, common: &Common, (pp, dp): (u64, u64), faults: &mut Vec<Fault>) {
    let at = setup.system.network_place;
    if let Workload::Llm(llm) = &setup.settings.workload
        && pp > llm.layers
    {
        faults.push(Fault::at(at, "system", format!("PP = {pp} stages, but there are {} layers", llm.layers)));
    }
    let microbatches = common.global_batch / common.micro_batch.max(1);
    if dp > microbatches.max(1) {
        let text = format!(
            "DP = {dp} replicas, but the batch of {} has {microbatches} microbatches of {}",
            common.global_batch, common.micro_batch
        );
        faults.push(Fault::at(at, "system", text));
    }
}

/// A dimension of that size that serves `word`.
fn serves(word: &str, size: u64) -> DimensionUse {
    let degree = |w: &str| if word == w { size } else { 1 };
    DimensionUse { tp: degree("TP"), pp: degree("PP"), dp: degree("DP"), ..DimensionUse::NONE }
}

/// Degrees of TP, PP and DP, where the dimensions have sizes.
fn degrees(setup: &Setup, words: &[String]) -> Option<[u64; 3]> {
    let mut degrees = [1u64; 3];
    for (dim, word) in setup.system.dims.iter().zip(words) {
        let at = ["TP", "PP", "DP"].iter().position(|w| w == word)?;
        degrees[at] = degrees[at].saturating_mul(dim.size?);
    }
    Some(degrees)
}

/// The study file.
pub(super) fn tree(
    setup: &Setup,
    common: &Common,
    names: &[String],
    notes: &mut Vec<Note>,
    faults: &mut Vec<Fault>,
) -> Json {
    let mut solve = Map::new();
    if let Some(words) = parallelism(setup, notes, faults) {
        if let Some([tp, pp, dp]) = degrees(setup, &words) {
            impossible(setup, common, (pp, dp), faults);
            for (word, degree) in [("tp", tp), ("pp", pp), ("dp", dp)] {
                solve.insert(word.into(), json!(degree));
            }
            // Where sizes are equal the degrees do not say which dimension serves which.
            let sizes: Vec<u64> = setup.system.dims.iter().filter_map(|d| d.size).collect();
            if sizes.iter().enumerate().any(|(i, size)| *size > 1 && sizes[i + 1..].contains(size)) {
                let uses: Vec<DimensionUse> = words.iter().zip(&sizes).map(|(w, size)| serves(w, *size)).collect();
                solve.insert("network_use".into(), json!(uses));
            }
        } else {
            notes.push(Note::changed(
                "system: parallelism of the dimensions",
                None,
                "searched: some sizes were left to the solver",
            ));
        }
    }
    if let Some(most) = setup.settings.partitions {
        solve.insert("max_partitions".into(), json!(most));
    }
    let pins = pins(setup, names, notes);
    if !pins.is_empty() {
        solve.insert("partitions".into(), Json::Object(pins));
    }
    match Family::named(setup) {
        // Its sizes are those of one replica; every chip is one.
        Some(family) if replicated(setup, family) => {
            for (degree, value) in [("tp", 1), ("pp", 1), ("dp", setup.system.chips)] {
                solve.insert(degree.into(), json!(value));
            }
        }
        Some(Family::Hpl | Family::Fft) => {
            let text = "DFModel's process grid follows from the dimensions; the study searches it";
            notes.push(Note::changed("system: parallelism of the dimensions", None, text));
        }
        _ => {}
    }
    if let Workload::Llm(llm) = &setup.settings.workload
        && let Some((tile, place)) = llm.tile
    {
        // model.md section 2: of the generations read here these tie tile size and count.
        if !tied(setup.generation) {
            let text = format!("{tile}; the tile count of this generation did not follow from it: searched here");
            notes.push(Note::ignored("llm.tile_size", Some(place), text));
        } else if llm.seq.is_multiple_of(tile) {
            solve.insert("tiles".into(), json!(llm.seq / tile));
        } else {
            let text = format!("expected a divisor of the sequence of {}, found {tile}", llm.seq);
            faults.push(Fault::at(place, "llm.tile_size", text));
        }
    }
    let mut theirs = json!({ "system.model": model(setup) });
    // What DFModel does not cut into tiles our model may.
    let cut = solve.contains_key("tiles") || setup.kernels.iter().any(|k| k.tiled_n || k.tiled_k);
    if let (false, Some(map)) = (cut, theirs.as_object_mut()) {
        map.insert("solve.tiles".into(), json!(1));
    }
    let mut axes = vec![json!({
        "name": "model",
        "points": {
            "dfmodel": theirs,
            "flowspace": { "system.model": "flowspace" },
        },
    })];
    axes.extend(dimension_axis(setup, faults, notes));
    let mut study = json!({
        "name": common.name,
        "question": "What do DFModel's formulas say of this setup, and what do ours?",
        "source": common.source,
        "workload": format!("{}-workload.yaml", common.name),
        "system": format!("{}-system.yaml", common.name),
        "axes": axes,
    });
    if let (false, Some(map)) = (solve.is_empty(), study.as_object_mut()) {
        map.insert("solve".into(), Json::Object(solve));
    }
    study
}

/// Whether tile size and count follow from each other: of the others the count is free (model.md, section 2).
pub(super) fn tied(generation: Generation) -> bool {
    !matches!(generation, Generation::Parallel | Generation::Miscellany | Generation::PerfectOverlap)
}

/// Whether every chip computes all that the kernels say, with data of its own.
fn replicated(setup: &Setup, family: Family) -> bool {
    family == Family::Dlrm || (family == Family::Hpl && setup.generation.is_first())
}

/// Chips of a tensor-parallel group, where the file states them.
pub(super) fn tensor_degree(setup: &Setup) -> Option<u64> {
    let words = parallelism(setup, &mut Vec::new(), &mut Vec::new())?;
    degrees(setup, &words).map(|[tp, _, _]| tp).filter(|tp| *tp > 1)
}

/// Partitions that the file gives some kernels (`config` from 0 on; -1 leaves it to the solver): of a file that the passes have filled in they
/// are results.
fn pins(setup: &Setup, names: &[String], notes: &mut Vec<Note>) -> Map<String, Json> {
    let style = setup.settings.dataflow.unwrap_or(true);
    let given: Vec<(&Kernel, &String)> = setup.kernels.iter().zip(names).filter(|(k, _)| k.config >= 0).collect();
    let filled = given.iter().any(|(k, _)| k.shard_n.is_some());
    // Where nothing is said of any kernel the field's default is no wish.
    if !style || filled || given.iter().all(|(k, _)| k.config == 0 && !k.config_stated) {
        return Map::new();
    }
    let mut used: Vec<i64> = given.iter().map(|(k, _)| k.config).collect();
    used.sort_unstable();
    used.dedup();
    if used.iter().enumerate().any(|(i, c)| usize::try_from(*c) != Ok(i)) {
        let text = "partitions between those named may be empty there; here each has a kernel";
        notes.push(Note::changed("dataflow_graph.kernels: config", None, text));
    }
    given.into_iter().map(|(k, name)| (name.clone(), json!(k.config))).collect()
}

/// The microbatch that the first generation's solver takes where the file leaves it open: the largest whose crossing tensors fit the
/// DRAM beside the weights, (W + C b) layers <= capacity (model.md section 5, "DRAM capacity"). Of a single chip's mapping, which the
/// file must hold.
pub(super) fn first_micro_batch(setup: &Setup, word: u64) -> Option<u64> {
    let mapped = setup.kernels.iter().all(|k| k.config >= 0 && k.shard_n.is_some());
    let (Workload::Llm(llm), true, Some(capacity)) =
        (&setup.settings.workload, mapped && setup.system.dims.is_empty(), setup.system.dram_capacity)
    else {
        return None;
    };
    let of = |k: &Kernel, columns: u64| k.rows() as f64 * columns as f64 * word as f64;
    let weights: f64 = setup.kernels.iter().filter(|k| k.form == Form::Weight).map(|k| of(k, k.k)).sum();
    // Once where it is written and once where it is read.
    let crossing: f64 = 2.0
        * (setup.edges.iter())
            .filter_map(|e| Some((setup.kernels.get(e.from)?, setup.kernels.get(e.to)?)))
            .filter(|(from, to)| from.config != to.config)
            .map(|(from, _)| of(from, from.n))
            .sum::<f64>();
    let room = f64::from(capacity) / llm.layers.max(1) as f64 - weights;
    (crossing > 0.0 && room >= crossing).then(|| (room / crossing).floor() as u64)
}

/// The sizes of several dimensions that were left to DFModel's solver: every division of the chips.
fn dimension_axis(setup: &Setup, faults: &mut Vec<Fault>, notes: &mut Vec<Note>) -> Option<Json> {
    let dims = &setup.system.dims;
    let free: Vec<usize> = (0..dims.len()).filter(|d| dims[*d].size.is_none()).collect();
    if free.is_empty() {
        return None;
    }
    let fixed: u64 = dims.iter().filter_map(|d| d.size).fold(1, u64::saturating_mul);
    let names: Vec<String> = free.iter().map(|d| dims[*d].letter.to_string()).collect();
    let found = divisions(setup.system.chips / fixed.max(1), free.len(), MAX_DIVISIONS);
    if free.len() == 1 {
        notes.push(Note::assumed(
            format!("system: size of {}", names.join(", ")),
            "from num_chip and the other dimensions",
        ));
        return None;
    }
    if found.len() > MAX_DIVISIONS {
        let text = format!(
            "system: the sizes of {} are free, which leaves more than {MAX_DIVISIONS} divisions; give some of them",
            names.join(", ")
        );
        faults.push(Fault::whole(text));
        return None;
    }
    let text = format!("left to DFModel's solver; the study has an axis with all {} divisions", found.len());
    notes.push(Note::changed(format!("system: sizes of {}", names.join(", ")), None, text));
    let points: Map<String, Json> = found
        .into_iter()
        .map(|division| {
            let label: Vec<String> = division.iter().map(u64::to_string).collect();
            let sets: Map<String, Json> = free
                .iter()
                .zip(&division)
                .map(|(d, size)| (format!("system.network.dimensions.{d}.size"), json!(size)))
                .collect();
            (label.join("x"), Json::Object(sets))
        })
        .collect();
    Some(json!({ "name": "sizes", "points": points }))
}

/// The plan file, for a file that both of DFModel's passes have filled in.
pub(super) fn plan(
    setup: &Setup,
    common: &Common,
    names: &[String],
    spread: bool,
    notes: &mut Vec<Note>,
) -> Option<Json> {
    let kernels = &setup.kernels;
    let sharded = kernels.iter().all(|k| k.sharding.is_some());
    let mapped = sharded && kernels.iter().all(|k| k.config >= 0 && k.shard_n.is_some());
    if !mapped {
        if sharded {
            notes.push(Note::ignored(
                "dataflow_graph.kernels: sharding",
                None,
                "no partitions beside it, so there is no plan to write",
            ));
        }
        return None;
    }
    // Faults were noted for the study.
    let words = parallelism(setup, &mut Vec::new(), &mut Vec::new());
    let sizes = sizes(setup, &mut Vec::new());
    let uses: Option<Vec<DimensionUse>> = match (words, Family::named(setup)) {
        (Some(words), _) => Some(words.iter().zip(&sizes).map(|(word, size)| serves(word, *size)).collect()),
        (None, Some(family)) if replicated(setup, family) => Family::Dlrm.uses(&sizes),
        (None, Some(family)) if spread => family.uses(&sizes),
        (None, _) => setup.system.dims.is_empty().then(Vec::new),
    };
    let Some(uses) = uses else {
        let text = "no plan is written: the file does not say what the network's dimensions serve";
        notes.push(Note::ignored("dataflow_graph.kernels: sharding and config", None, text));
        return None;
    };
    let tp: u64 = uses.iter().map(|u| u.tp).fold(1, u64::saturating_mul);
    let tiles = tile_count(kernels, tp);
    notes.push(Note::changed(
        "dataflow_graph.kernels: shard_N",
        None,
        format!("the least of them gives a tile count of {tiles}"),
    ));
    let strategy = |k: &Kernel| if tp == 1 { Strategy::Replicate } else { k.sharding.unwrap_or(Strategy::Replicate) };
    let sharding: Map<String, Json> =
        kernels.iter().zip(names).map(|(k, name)| (name.clone(), json!(strategy(k)))).collect();
    let mut configs: Vec<i64> = kernels.iter().map(|k| k.config).collect();
    configs.sort_unstable();
    configs.dedup();
    let partitions: Vec<Vec<&String>> = configs
        .iter()
        .map(|c| kernels.iter().zip(names).filter(|(k, _)| k.config == *c).map(|(_, name)| name).collect())
        .collect();
    Some(json!({
        "flowspace_plan": 1,
        "workload": { "from": format!("{}-workload.yaml", common.name) },
        "system": { "from": format!("{}-system.yaml", common.name) },
        "network_use": uses,
        "tile_count": tiles,
        "sharding": sharding,
        "partitions": partitions,
    }))
}

/// Tiles that a sample is cut into: the streamed size over the smallest tile. A solver may leave a tile larger than it need
/// be, never smaller.
fn tile_count(kernels: &[Kernel], tp: u64) -> u64 {
    let count = |k: &Kernel| -> Option<u64> {
        let tile = if k.tiled_n {
            k.shard_n?
        } else if k.tiled_k {
            k.shard_k?
        } else {
            return None;
        };
        let whole = if k.tiled_n { k.n } else { k.k };
        let shards = if k.tiled_n && k.sharding == Some(Strategy::N) { tp } else { 1 };
        Some(whole.div_ceil(shards.max(1)).div_ceil(tile.max(1)))
    };
    kernels.iter().filter_map(count).max().unwrap_or(1)
}
