//! DFModel's first generations, imported and mapped: five setups of our own in notations that no stored run has, and the time that each
//! generation's formulas give, by hand. Times in ns, bytes over GB/s. In all of them (model.md, section 5, G1) a partition takes the longest of
//! compute, memory and network, and then W / (B microbatch) for its weights; the layer no less than its hand-over; and an iteration
//! layer x layers / PP x batch / DP, in training times 1 + (PP - 1) / microbatches.

use super::cli::succeed;
use super::scratch::Scratch;
use flowspace::import::dfmodel::schema::Generation;
use flowspace::import::dfmodel::{Options, import};

const COST: &str = "cost { link_unit_price: 2 switch_unit_price: 24 dram_unit_price: 1 }";

/// A kernel of the notation after the first; 16-bit words.
fn kernel(
    id: u64,
    name: &str,
    backward: bool,
    form: &str,
    (outer, m, k, n): (u64, u64, u64, u64),
    more: &str,
) -> String {
    let contracted = if form.starts_with("gemm") { format!("K: {k} ") } else { String::new() };
    let weight =
        if form == "gemm_input1_weight" { format!("weight_tensor_size: {} ", 2 * m * k) } else { String::new() };
    format!(
        "kernels {{ name: \"{name}\" id: {id} config: -1 fwd_bwd: {} type: {} {form} {{ outer: {outer} M: {m} {contracted}N: {n} {weight}output_tensor_size: {} {} }} }}\n",
        if backward { "BWD" } else { "FWD" },
        if contracted.is_empty() { "SIMD" } else { "SYSTOLIC" },
        2 * outer * m * n,
        if more.is_empty() { "tiling: N_TILING" } else { more }
    )
}

fn edges(list: &[(u64, u64)]) -> String {
    let of =
        |(i, (from, to)): (usize, &(u64, u64))| format!("connections {{ id: {i} startIdx: {from} endIdx: {to} }}\n");
    list.iter().enumerate().map(of).collect()
}

fn accelerator(cores: u64, (lanes, stages): (u64, u64), ghz: u64, bandwidth: u64) -> String {
    format!(
        "accelerator {{ core: {cores} systolic_width: {lanes} systolic_height: {stages} sram_cap: 1000000 freq: {ghz} dram_bw: {bandwidth} dram_cap: 1000000000 }}"
    )
}

const WEIGHT: &str = "gemm_input1_weight";
const PAIR: &str = "gemm_input1_input2";
const ELEMENTS: &str = "elementwise_input1";

/// `batch`. 64 x 32 x 32, 32 x 64 x 32 on 2 x 2, four tiles of 8 columns. Least bytes: rows, then contracted, one all-reduce of 32 x 32 elements. A core makes a
/// tile of either in 2 x 2 x 32 = 128 cycles: 512. All-reduce 2,048 / (2 x 25) = 40.96. Weights 2 x 2,048 / 100 = 40.96. The hand-over, 2,048 / 2 =
/// 1,024, is longer than 552.96. Four layers, two stages.
fn batch() -> (String, f64) {
    let kernel = |id: u64, name: &str, (m, k, n): (u64, u64, u64)| {
        format!(
            "kernels {{ name: \"{name}\" id: {id} batch_gemm_elementwise_outer_m_k_n {{ outer: 1 M: {m} K: {k} N: {n} type: SYSTOLIC weight_tensor_size: {} output_tensor_size: {} }} }}\n",
            2 * m * k,
            2 * m * n
        )
    };
    let (up, down) = (kernel(7, "up", (64, 32, 32)), kernel(9, "down", (32, 64, 32)));
    let text = format!(
        "dataflow_graph {{\n{up}{down}{}}}\nsystem {{ topo: TORUS_2D num_chip: 4 link_bw_x: 25 link_bw_y: 2 x: 2 y: 2 {} }}\n{COST}\n\
         training {{ optimization: FLASHATTENTION hidden_dim: 32 head_dim: 8 num_head: 4 seq_len: 32 num_layer: 4 num_config: 1 seq_tile_size: 8 }}\n",
        edges(&[(7, 9)]),
        accelerator(2, (16, 4), 1, 100)
    );
    let layer = f64::max(f64::max(4.0 * 128.0, 2048.0 / 50.0) + 4096.0 / 100.0, 2048.0 / 2.0);
    (text, layer * 4.0 / 2.0)
}

/// `torus`, kernel by kernel. 64 x 64 x 32 and two element-wise kernels that read it, one of them backward, by rows on a ring of four before two
/// stages; two tiles. The product on four cores of 8 x 2 at 2 GHz: 4 x 64 cycles a tile, 256; its results, one for each reader, 2 x 2,048 (of a
/// chip 1,024 each) / 100; its weight 2,048 / 100. The others: 16 cycles a tile on two cores, 16, their operand 10.24. Eight samples.
fn torus() -> (String, f64) {
    let kernels = [
        kernel(1, "up", false, WEIGHT, (1, 64, 64, 32), ""),
        kernel(2, "act", false, ELEMENTS, (1, 64, 1, 32), ""),
        kernel(3, "act_bwd", true, ELEMENTS, (1, 64, 1, 32), ""),
    ];
    let text = format!(
        "dataflow_graph {{\n{}{}}}\nsystem {{ num_chip: 8 {} dgx_1_2d {{ x: 4 y: 2 link_bw_x: 25 link_bw_y: 100 }} }}\n{COST}\n\
         training {{ optimization: KERNEL_BY_KERNEL hidden_dim: 64 head_dim: 8 num_head: 8 seq_len: 32 num_layer: 4 seq_tile_size: 16 global_batch_size: 8 }}\n",
        kernels.concat(),
        edges(&[(1, 2), (1, 3)]),
        accelerator(4, (8, 2), 2, 100)
    );
    let up = f64::max(2.0 * 256.0 / 2.0, 2048.0 / 100.0) + 2048.0 / 100.0;
    let other = f64::max(2.0 * 16.0 / 2.0, 1024.0 / 100.0);
    (text, (up + 2.0 * other) * (1.0 + 1.0 / 8.0) * 4.0 / 2.0 * 8.0)
}

/// `flat`. Four heads, 16 x 8 x 16 each, and a product that contracts over what they make, 32 x 64 x 16, on four fully connected chips: a head a chip, then by the
/// contracted size. Of three cores of 4 x 4 the second takes two: 8 x 4 x 16 / 2 = 256 cycles, the first 4 x 4 x 8. All-reduce 1,024 / (4 x 4), weight 1,024 / 4.
fn flat() -> (String, f64) {
    let kernels =
        [kernel(1, "scores", false, PAIR, (4, 16, 8, 16), ""), kernel(2, "proj", false, WEIGHT, (1, 32, 64, 16), "")];
    let text = format!(
        "dataflow_graph {{\n{}{}}}\nsystem {{ num_chip: 4 {} fc {{ x: 4 link_bw_x: 4 }} }}\n{COST}\n\
         training {{ optimization: FLASHATTENTION hidden_dim: 32 head_dim: 8 num_head: 4 seq_len: 16 num_layer: 3 num_config: 1 seq_tile_size: 16 global_batch_size: 5 }}\n",
        kernels.concat(),
        edges(&[(1, 2)]),
        accelerator(3, (4, 4), 1, 4)
    );
    let layer = f64::max(256.0, 1024.0 / 16.0) + 1024.0 / 4.0;
    (text, layer * 3.0 * 5.0)
}

/// `variant`, kernel by kernel, fully connected in both dimensions: 64 x 32 x 32 by rows, element-wise, 32 x 64 x 32 contracted. Two cores of 8 x 8 take 128 cycles
/// for either product, 32 for the elements. Memory at 16 GB/s: 1,024 B a tensor and weight, 64 each. All-reduce 2,048 / (4 x 8) = 64. The hand-over, 2,048 / 2, is
/// longer than 192 + 128 + 192.
fn variant() -> (String, f64) {
    let kernels = [
        kernel(1, "up", false, WEIGHT, (1, 64, 32, 32), ""),
        kernel(2, "act", false, ELEMENTS, (1, 64, 1, 32), ""),
        kernel(3, "down", false, WEIGHT, (1, 32, 64, 32), ""),
    ];
    let text = format!(
        "dataflow_graph {{\n{}{}}}\nsystem {{ num_chip: 8 {} fc_fc {{ x: 4 y: 2 link_bw_x: 8 link_bw_y: 2 }} }}\n{COST}\n\
         training {{ llm {{ hidden_dim: 32 head_dim: 8 num_head: 4 seq_len: 32 num_layer: 6 seq_tile_size: 32 }} optimization: KERNEL_BY_KERNEL global_batch_size: 3 micro_batch_size: 1 }}\n",
        kernels.concat(),
        edges(&[(1, 2), (2, 3)]),
        accelerator(2, (8, 8), 1, 16)
    );
    let layer = (128.0 + 64.0) + 128.0 + (128.0 + 64.0);
    (text, f64::max(layer, 2048.0 / 2.0) * 6.0 / 2.0 * 3.0)
}

/// `training` on a torus of 2 x 2 x 2. Forward an element-wise kernel and a product, 32 x 32 x 16; backward the same and the weight's gradient, contracted over the
/// tokens, which reads what the forward kernel made: 1,024 B out and in at 10 GB/s, 102.4. Two tiles of 8 columns, three cores of 8 x 4. Forward: the product on two cores
/// 64 cycles a tile. Backward: one core each, the product and the gradient 128. The gradient's all-reduce is divided among the four microbatches: 1,024 / 4 / (2 x 2) = 64. A
/// weight 1,024 B, read once for two samples: 51.2 in each partition.
fn training() -> (String, f64) {
    let kernels = [
        kernel(1, "add", false, ELEMENTS, (1, 32, 1, 16), ""),
        kernel(2, "up", false, WEIGHT, (1, 32, 32, 16), ""),
        kernel(3, "add_bwd", true, ELEMENTS, (1, 32, 1, 16), ""),
        kernel(4, "up_bwd", true, WEIGHT, (1, 32, 32, 16), ""),
        kernel(
            5,
            "up_upd",
            true,
            PAIR,
            (1, 32, 16, 32),
            "tiling: K_TILING communication_type: ALL_REDUCE_PERIODIC communication_size: 2048",
        ),
    ];
    let text = format!(
        "dataflow_graph {{\n{}{}}}\nsystem {{ num_chip: 8 {} r_r_r {{ x: 2 y: 2 z: 2 link_bw_x: 8 link_bw_y: 10 link_bw_z: 2 }} }}\n{COST}\n\
         training {{ llm {{ hidden_dim: 32 head_dim: 8 num_head: 4 seq_len: 16 num_layer: 4 seq_tile_size: 8 }} optimization: FLASHATTENTION global_batch_size: 16\n\
         micro_batch_size: 2 num_config: 2 training: true word: 2 }}\n",
        kernels.concat(),
        edges(&[(1, 2), (3, 4), (3, 5), (1, 5)]),
        accelerator(3, (8, 4), 1, 10)
    );
    let weight = 1024.0 / (10.0 * 2.0);
    let forward = f64::max(2.0 * 64.0, 102.4) + weight;
    let backward = f64::max(2.0 * 128.0, 102.4) + weight;
    (text, (forward + backward) * (1.0 + 1.0 / 4.0) * 4.0 / 2.0 * 16.0 / 2.0)
}

#[test]
fn first_generations_take_the_times_of_their_formulas() {
    let cases = [
        (Generation::Batch, batch()),
        (Generation::Torus, torus()),
        (Generation::Flat, flat()),
        (Generation::Variant, variant()),
        (Generation::Training, training()),
    ];
    let mut faults = Vec::new();
    for (generation, (text, expected)) in cases {
        let scratch = Scratch::new(&format!("generation-{generation}"));
        let options = Options { generation: Some(generation), skip_unknown: false, name: "run".into() };
        let imported = import("setup.txt", text.as_bytes(), &options).unwrap_or_else(|e| panic!("{generation}: {e}"));
        for (name, text) in &imported.files {
            scratch.write(name, text);
        }
        succeed(&["study", "run", &scratch.file("run-study.yaml"), "--out", &scratch.file("out")]);
        let table = scratch.read("out/results.csv");
        let mut rows = csv::Reader::from_reader(table.as_bytes());
        let at = |name: &str| table.lines().next().unwrap().split(',').position(|c| c == name).unwrap();
        let (model, status, time) = (at("model"), at("status"), at("iteration_s"));
        let row = rows.records().map(Result::unwrap).find(|r| &r[model] == "dfmodel").unwrap();
        let found = row[time].parse::<f64>().unwrap_or(f64::NAN) * 1e9;
        if &row[status] != "optimal" || found.is_nan() || (found / expected - 1.0).abs() >= 1e-9 {
            let notes: Vec<String> = imported.notes.iter().map(ToString::to_string).collect();
            faults.push(format!("{generation}: {} {found} ns, by hand {expected}\n{}", &row[status], notes.join("\n")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
