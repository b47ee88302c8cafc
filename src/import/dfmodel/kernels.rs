//! The kernels and edges of a file.

use super::setup::{Comm, Edge, Form, Kernel, MAX_SIZE, Reader};
use super::tree::{Message, Place, Value};
use super::typed::join;
use crate::model::Strategy;
use std::collections::HashMap;

/// Most kernels of a graph: DFModel's largest have some hundreds.
const MAX_KERNELS: usize = 20_000;

impl Reader {
    pub(super) fn graph(&mut self, root: &Message) -> (Vec<Kernel>, Vec<Edge>) {
        let Some((graph, place)) = root.message("dataflow_graph") else {
            self.faults.push(super::tree::Fault::whole("dataflow_graph is missing: there is nothing to compute"));
            return Default::default();
        };
        let mut kernels = Vec::new();
        let mut by_id: HashMap<i64, (usize, Place)> = HashMap::new();
        let mut by_name: HashMap<String, Place> = HashMap::new();
        for (message, place) in graph.messages("kernels") {
            let index = kernels.len();
            let id = message.int("id").map_or(0, |(id, _)| id);
            if let Some((_, first)) = by_id.insert(id, (index, place)) {
                self.say(place, "dataflow_graph.kernels.id", format!("{id} stands twice, first on {first}"));
            }
            let name = match message.text("name") {
                Some((name, _)) => name.to_string(),
                None => format!("kernel_{id}"),
            };
            if let Some(first) = by_name.insert(name.clone(), place) {
                self.say(place, "dataflow_graph.kernels.name", format!("{name:?} stands twice, first on {first}"));
            }
            kernels.extend(self.kernel(message, name, place));
            if kernels.len() == index {
                // Keeps the positions right for the edges; the fault is noted.
                kernels.push(Kernel::blank(place));
            }
        }
        if kernels.len() > MAX_KERNELS {
            self.say(
                place,
                "dataflow_graph.kernels",
                format!("expected at most {MAX_KERNELS}, found {}", kernels.len()),
            );
        }
        if kernels.is_empty() {
            self.say(place, "dataflow_graph.kernels", "expected at least one kernel, found none");
        }
        let mut edges = Vec::new();
        for (message, place) in graph.messages("connections") {
            let mut end = |field: &str| -> Option<usize> {
                let id = message.int(field).map_or(0, |(id, _)| id);
                let found = by_id.get(&id).map(|(index, _)| *index);
                if found.is_none() {
                    let path = format!("dataflow_graph.connections.{field}");
                    self.say(place, path, format!("there is no kernel with id {id}"));
                }
                found
            };
            let (from, to) = (end("startIdx"), end("endIdx"));
            if let (Some(from), Some(to)) = (from, to) {
                if from == to {
                    self.say(place, "dataflow_graph.connections", "leads from a kernel to itself");
                } else {
                    edges.push(Edge { place, from, to });
                }
            }
        }
        self.cycle(&kernels, &edges);
        (kernels, edges)
    }

    /// Notes the kernels that depend on each other in a circle.
    fn cycle(&mut self, kernels: &[Kernel], edges: &[Edge]) {
        let mut waiting = vec![0usize; kernels.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); kernels.len()];
        for edge in edges {
            waiting[edge.to] += 1;
            readers[edge.from].push(edge.to);
        }
        let mut ready: Vec<usize> = (0..kernels.len()).filter(|k| waiting[*k] == 0).collect();
        while let Some(kernel) = ready.pop() {
            for reader in &readers[kernel] {
                waiting[*reader] -= 1;
                if waiting[*reader] == 0 {
                    ready.push(*reader);
                }
            }
        }
        let left: Vec<usize> = (0..kernels.len()).filter(|k| waiting[*k] > 0).collect();
        let in_circle = |e: &&Edge| waiting[e.from] > 0 && waiting[e.to] > 0;
        if let Some(edge) = edges.iter().find(in_circle) {
            let names: Vec<&str> = left.iter().take(8).map(|k| kernels[*k].name.as_str()).collect();
            let more = if left.len() > 8 { ", ..." } else { "" };
            let message = format!("the graph has a circle; it or what follows it: {}{more}", names.join(", "));
            self.say(edge.place, "dataflow_graph.connections", message);
        }
    }

    fn kernel(&mut self, message: &Message, name: String, place: Place) -> Option<Kernel> {
        let path = format!("dataflow_graph.kernels[{name}]");
        let Some((variant, inner, inner_place)) = message.one_of("kernel_variant") else {
            let due = "none of gemm_input1_weight, gemm_input1_input2, elementwise_input1, elementwise_input1_input2";
            self.say(place, path, due);
            return None;
        };
        let path = join(&path, variant);
        let unit = message.word("type").or_else(|| inner.word("type")).map(|(w, _)| w);
        // A kernel without any size stands for what it communicates.
        let empty = ["outer", "M", "K", "N"].iter().all(|size| inner.int(size).is_none());
        if empty {
            return self.finish(
                message,
                inner,
                (name, place, path),
                Shape { form: Form::Elementwise, outer: 1, m: 1, k: 1, n: 1, empty },
            );
        }
        let outer = self.needed(inner, "outer", &path, inner_place, MAX_SIZE);
        let m = self.needed(inner, "M", &path, inner_place, MAX_SIZE);
        let n = self.needed(inner, "N", &path, inner_place, MAX_SIZE);
        let weight_bytes = self.bytes(inner, "weight_tensor_size", &path);
        let form = match variant {
            "gemm_input1_weight" => Form::Weight,
            "gemm_input1_input2" => Form::TwoTensors,
            "elementwise_input1" | "elementwise_input1_input2" => Form::Elementwise,
            _ if unit.as_deref() == Some("SIMD") => Form::Elementwise,
            _ if weight_bytes.is_some() => Form::Weight,
            _ => Form::TwoTensors,
        };
        let k = match form {
            Form::Elementwise => {
                inner.get("K");
                1
            }
            _ => self.needed(inner, "K", &path, inner_place, MAX_SIZE),
        };
        self.finish(message, inner, (name, place, path), Shape { form, outer, m, k, n, empty })
    }

    /// What does not depend on the kind of kernel.
    fn finish(
        &mut self,
        message: &Message,
        inner: &Message,
        (name, place, path): (String, Place, String),
        Shape { form, outer, m, k, n, empty }: Shape,
    ) -> Option<Kernel> {
        let tiling = inner.word("tiling").map(|(w, _)| w);
        let config = message.get("config").and_then(|f| match &f.value {
            Value::Int(n) => Some(*n),
            _ => None,
        });
        let sharding = inner.word("sharding").and_then(|(word, _)| {
            Some(match word.split('_').next()? {
                "OUTER" => Strategy::Outer,
                "M" => Strategy::M,
                "K" => Strategy::K,
                "N" => Strategy::N,
                _ => Strategy::Replicate,
            })
        });
        let mut comms = Vec::new();
        for (kind, size) in
            [("communication_type", "communication_size"), ("communication_type_2", "communication_size_2")]
        {
            let Some((word, at)) = inner.word(kind) else { continue };
            let bytes = self.positive(inner, size, &path);
            let comm = match word.as_str() {
                "ALL_REDUCE" => Comm::AllReduce,
                "ALL_TO_ALL" => Comm::AllToAll,
                "ALL_GATHER" => Comm::AllGather,
                "ALL_REDUCE_PERIODIC" => Comm::Gradient,
                "POINT_TO_POINT" => Comm::PointToPoint,
                _ => Comm::Broadcast,
            };
            match bytes {
                Some(bytes) => comms.push((comm, f64::from(bytes))),
                None => self.say(at, join(&path, kind), format!("{word} without a {size} above zero")),
            }
        }
        Some(Kernel {
            place,
            name,
            form,
            outer,
            m,
            k,
            n,
            systolic: form == Form::Elementwise && !empty && message.word("type").is_some_and(|(w, _)| w == "SYSTOLIC"),
            empty,
            // The oldest notation has it with the sizes.
            backward: message.word("fwd_bwd").or_else(|| inner.word("fwd_bwd")).is_some_and(|(w, _)| w == "BWD"),
            config: config.unwrap_or(0),
            config_stated: config.is_some(),
            sharding,
            tiled_k: tiling.as_deref() == Some("K_TILING"),
            tiled_n: tiling.as_deref() == Some("N_TILING"),
            shard_n: self.count(inner, "shard_N", &path, MAX_SIZE),
            shard_k: self.count(inner, "shard_K", &path, MAX_SIZE),
            output_bytes: self.bytes(inner, "output_tensor_size", &path),
            weight_bytes: self.bytes(inner, "weight_tensor_size", &path),
            comms,
            memory_bytes: self.bytes(inner, "memory_size", &path).unwrap_or(0.0),
        })
    }
}

/// Sizes of a kernel.
struct Shape {
    form: Form,
    outer: u64,
    m: u64,
    k: u64,
    n: u64,
    empty: bool,
}

impl Kernel {
    /// Stands for a kernel that has a fault.
    fn blank(place: Place) -> Self {
        Self {
            place,
            name: String::new(),
            form: Form::Elementwise,
            outer: 1,
            m: 1,
            k: 1,
            n: 1,
            systolic: false,
            empty: false,
            backward: false,
            config: 0,
            config_stated: false,
            sharding: None,
            tiled_k: false,
            tiled_n: false,
            shard_n: None,
            shard_k: None,
            output_bytes: None,
            weight_bytes: None,
            comms: Vec::new(),
            memory_bytes: 0.0,
        }
    }

    /// Rows of the output.
    pub fn rows(&self) -> u64 {
        self.outer.saturating_mul(self.m)
    }

    /// Whether a gradient is reduced behind it, so that it is a weight's.
    pub fn is_update(&self) -> bool {
        self.form == Form::TwoTensors && (self.tiled_k || self.comms.iter().any(|(c, _)| *c == Comm::Gradient))
    }
}
