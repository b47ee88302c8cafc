//! Conversions, classes and errors by hand.

use super::bounds::Bounds;
use super::metric::{error_pct, express};
use super::point::Phase;
use super::predict::Models;
use super::sources::Trained;
use super::suites::{SUITES, bounds};
use super::*;
use crate::execution::{Recompute, Schedule, Zero};
use crate::spec::{Node, Reader};

/// Points of a file of ours with the columns that a test names.
fn points(columns: &str, rows: &[&str]) -> Vec<Point> {
    let text = format!("{columns}\n{}\n", rows.join("\n"));
    let file = read::read("test.csv", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    file.rows.into_iter().map(Point::new).collect()
}

const TRAIN: &str = "id,workload,layers,hidden,heads,seq,vocab,global_batch,micro_batch,accelerator,chips,tp,pp,dp,interleave,recompute,seq_parallel,metric,value,unit,source,notes";

#[track_caller]
fn within(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "found {found}, expected {expected}");
}

/// What a run trains is what its row states, else what the list says of its source, else what whole words name: not what a model is called.
#[test]
fn what_is_trained_is_a_fact() {
    let row = |trained: &str, workload: &str, source: &str| {
        let columns = TRAIN.replace("seq_parallel", "seq_parallel,trained");
        let row = format!(
            "a,{workload},24,2304,24,2048,51200,512,16,A100-80GB,32,1,1,32,1,full,no,{trained},tflops_per_gpu,137,TFLOP/s/GPU,{source},"
        );
        points(&columns, &[row.as_str()]).remove(0).trained()
    };
    assert_eq!(row("", "GPT train", "a paper"), Trained::All);
    assert_eq!(row("", "FloraLoRA train", "a paper"), Trained::All);
    assert_eq!(row("adapters", "GPT train", "a paper"), Trained::Adapters);
    assert_eq!(row("head", "GPT LoRA train", "meta-pytorch/torchtune"), Trained::Head);
    assert_eq!(row("", "GPT LoRA train", "a paper"), Trained::Adapters);
    for full in ["GPT train (no LoRA)", "GPT train w/o LoRA", "GPT non-LoRA train", "GPT train LoRA disabled"] {
        assert_eq!(row("", full, "a paper"), Trained::All, "{full}");
    }
    assert_eq!(row("", "GPT prompt_tuning train", "huggingface/optimum-habana"), Trained::Adapters);
    let text = format!(
        "{},trained\na,GPT train,24,2304,24,2048,51200,512,16,A100-80GB,32,1,1,32,1,full,no,mfu,40,%,x,,lora\n",
        TRAIN
    );
    let refused = read::read("t.csv", text.as_bytes()).unwrap_err().to_string();
    assert!(refused.contains("trained: expected all, adapters or head, found \"lora\""), "{refused}");
}

/// Narayanan et al.'s 1.7B model takes 3.528 s at the printed 137 TFLOP/s; Korthikanti's 22B at 1.10 s is at 41.5 %.
#[test]
fn times_become_printed_rates() {
    let list = points(
        TRAIN,
        &[
            "a,GPT train,24,2304,24,2048,51200,512,16,A100-80GB,32,1,1,32,1,full,no,tflops_per_gpu,137,TFLOP/s/GPU,arXiv 2104.04473,",
            "b,GPT train,48,6144,64,2048,51200,4,4,A100-80GB,8,8,1,1,1,selective,yes,mfu,41.5,%,arXiv 2205.05198,",
            "c,PaLM train,118,18432,48,2048,256000,2048,,TPUv4,6144,12,1,512,,partial,,tokens_per_s,238300,tok/s,x,head dim 256",
            "d,PaLM train,118,18432,48,2048,256000,2048,,TPUv4,6144,12,1,512,,partial,,mfu,46.2,%,arXiv 2204.02311,head dim 256",
            "e,LLM inference Llama-2-7b-hf,32,4096,32,1024,32000,16,,A100,2,2,1,1,,,,tokens_per_s,2258.17,tok/s,x,Tensor Parallelism; input = output = 1024",
        ],
    );
    let value = |i: usize, seconds: f64| express(&list[i], &Prediction::Seconds(seconds)).unwrap();
    within(value(0, 3.528), 137.0, 2e-4);
    within(value(1, 1.10), 41.5, 5e-3);
    within(value(2, 2048.0 * 2048.0 / 238300.0), 238300.0, 1e-12);
    within(value(3, 2048.0 * 2048.0 / 238300.0), 46.2, 1e-3);
    // The benchmark's latency of 14.511 s and rate of 2258.17 tokens read and written.
    let served = metric::Served {
        batch: 16.0,
        prompt: 1024.0,
        generated: 1024.0,
        phase: Phase::Whole,
        latency: 14.511,
        first: 1.0,
        token: 0.0125,
        bytes: 1.0,
        larger_memory: None,
    };
    within(express(&list[4], &Prediction::Served(served)).unwrap(), 2258.17, 1e-4);
    // 16 prompts of 1,024 tokens in a second, 16 tokens in 12.5 ms.
    let phase = |phase| express(&list[4], &Prediction::Served(metric::Served { phase, ..served }));
    assert_eq!((phase(Phase::Prompt), phase(Phase::Tokens)), (Ok(16384.0), Ok(1280.0)));
    assert!(express(&list[0], &Prediction::Seconds(0.0)).is_err());
    assert!(express(&list[0], &Prediction::Bytes(1.0)).is_err());
}

#[test]
fn kernels_and_collectives_in_their_units() {
    let list = points(
        "id,workload,accelerator,chips,metric,value,unit,notes",
        &[
            "a,matmul M=8192 K=12288 N=64 FP16,A100,1,time,8.6,ms,",
            "b,best-shape matmul FP8,H200,1,tflops_per_chip,1453,TFLOP/s,MxNxK 1024x10240x5120",
            "c,all-reduce microbenchmark,V100,4,allreduce_busbw,991.8,Gbit/s,4 GB payload",
            "d,matmul [2304x4096]x[4096xN],GroqChip1,1,utilization_lower_bound,80,%,FP16",
        ],
    );
    assert_eq!(
        list[0].task,
        Task::Matmul {
            groups: 1,
            m: 8192,
            n: 64,
            k: 12288,
            precision: crate::workload::language::DataType::Fp16,
            exact: false,
            stored: None
        }
    );
    assert_eq!(express(&list[0], &Prediction::Seconds(0.0086)), Ok(8.6));
    assert!(matches!(list[1].task, Task::BestMatmul { shape: Some((1024, 10240, 5120)), .. }));
    assert_eq!(express(&list[1], &Prediction::InRowsQuantity(1.5e15)), Ok(1500.0));
    let less = "e,all-reduce -5 B,H100,8,allreduce_busbw,100,GB/s,";
    let less = points("id,workload,accelerator,chips,metric,value,unit,notes", &[less]).remove(0);
    assert!(matches!(&less.task, Task::Other { reason } if reason.contains("size")), "{:?}", less.task);
    // 2 x 3/4 x 4 GB in 0.05 s: 120 GB/s, 960 Gbit/s.
    within(express(&list[2], &Prediction::Seconds(0.05)).unwrap(), 960.0, 1e-12);
    assert_eq!((list[2].class, list[3].class), (Class::Collectives, Class::Products));
}

/// Four products of 8,192 rows, each with its own weight: four times the FLOP and the bytes of one (operands of a byte, a result of two).
#[test]
fn groups_are_products_side_by_side() {
    let row = |groups: &str, metric: &str| {
        let row = format!("a,FP8 GEMM M=8192 N=7168 K=2048{groups},H800,1,{metric},x");
        points("id,workload,accelerator,chips,metric,value,unit,source", &[row.as_str()]).remove(0)
    };
    let flop = 2.0 * 8192.0 * 7168.0 * 2048.0;
    let rate = |groups| express(&row(groups, "tflops_per_chip,1000,TFLOP/s"), &Prediction::Seconds(1e-3)).unwrap();
    within(rate(""), flop / 1e9, 1e-12);
    within(rate(" groups=4"), 4.0 * flop / 1e9, 1e-12);
    let bytes = 8192.0 * 2048.0 + 7168.0 * 2048.0 + 2.0 * 8192.0 * 7168.0;
    let read = express(&row(" groups=4", "achieved_memory_bandwidth,700,GB/s"), &Prediction::Seconds(1e-3)).unwrap();
    within(read, 4.0 * bytes / 1e6, 1e-12);
    for unread in [" groups=0", " groups = 4", " groups=99999999999999999999"] {
        let task = row(unread, "tflops_per_chip,1000,TFLOP/s").task;
        assert!(matches!(&task, Task::Other { reason } if reason.contains("groups")), "{unread}: {task:?}");
    }
    assert_eq!(
        row(" Groups=4", "tflops_per_chip,1000,TFLOP/s").task,
        row(" groups=4", "tflops_per_chip,1000,TFLOP/s").task
    );
}

/// Prompts that rows of a source do not repeat stand once in the list; a value that its own notes doubt is not predicted; of what is no language model no
/// lengths are asked.
#[test]
fn what_a_source_says_once() {
    let row = |workload: &str, notes: &str, source: &str| {
        let row = format!("a,{workload},1,Wormhole,1,tokens_per_s_per_user,28,tok/s/user,{source},{notes}");
        points("id,workload,global_batch,accelerator,chips,metric,value,unit,source,notes", &[row.as_str()]).remove(0)
    };
    let (page, words) = ("x/tt-metal/blob/1/models/tt_transformers/PERF.md", "section 'Performance'");
    let found = row("LLM inference Llama-3.1-8B", words, page);
    assert_eq!(found.task, Task::Inference { prompt: 128, generated: 2, phase: Phase::Whole });
    assert_eq!((found.incomplete.as_deref(), found.assumed[0].as_str()), (None, "prompts of 128 tokens"));
    let long = row("LLM inference Llama-3.1-8B", "section 'Long-context (64K Tokens)'", page);
    assert_eq!(long.task, Task::Inference { prompt: 65536, generated: 2, phase: Phase::Whole });
    let doubted = row("LLM inference Llama-3.1-8B", "section 'Performance'; SUSPECT: copied", page);
    assert!(doubted.incomplete.unwrap().contains("SUSPECT"));
    // A rate of all users depends on the answer's length, which stands nowhere.
    let rate = "a,LLM inference Llama-3.1-8B,32,Wormhole,1,output_tokens_per_s,18,tok/s,x/models/tt_transformers/PERF.md,section 'Performance'";
    let rate = points("id,workload,global_batch,accelerator,chips,metric,value,unit,source,notes", &[rate]).remove(0);
    assert!(matches!(rate.task, Task::Other { .. }), "{:?}", rate.task);
    let other = row("LLM inference Llama-3.1-8B", words, "another page");
    assert!(matches!(&other.task, Task::Other { reason } if reason.contains("lengths")), "{:?}", other.task);
}

/// Positive is slower or more, whichever way round the figure is.
#[test]
fn errors_have_one_sign() {
    assert_eq!(error_pct(&Metric::Time, 2.0, 3.0), 50.0);
    assert_eq!(error_pct(&Metric::FlopRate, 150.0, 100.0), 50.0);
    assert_eq!(error_pct(&Metric::ActivationMemory, 4.0, 3.0), -25.0);
    assert_eq!(error_pct(&Metric::LeastUtilization, 80.0, 95.0), 0.0);
    assert_eq!(error_pct(&Metric::LeastUtilization, 80.0, 40.0), 100.0);
    assert_eq!((error_pct(&Metric::Fits, 1.0, 1.0), error_pct(&Metric::Fits, 1.0, 0.0)), (0.0, 100.0));
}

#[test]
fn executions_from_columns_and_notes() {
    let list = points(
        TRAIN,
        &[
            "a,GPT train,96,12288,96,2048,51200,64,1,A100-80GB,64,8,8,1,3,selective (attention core),yes,iteration_time,13.75,s,arXiv 2205.05198,",
            "b,Llama-3 train,126,16384,128,131072,128256,128,,H100-80GB,16384,8,16,128,,none (reported off),yes,mfu,38,%,x,CP 16",
            "c,GPT train,96,12288,96,2048,51200,1536,4,A100-80GB,384,1,1,384,,full,no,tflops_per_gpu,144,TFLOP/s/GPU,\"2104.04473, Table 2\",ZeRO-3",
            "d,GPT-3 train,96,12288,96,2048,,1152,,H100-80GB,96,,,,,,,mfu,47,%,x,BF16",
            "e,GPT train,96,12288,96,2048,,1152,1,H100-80GB,96,8,4,2,,,,mfu,47,%,x,",
            "f,LLM inference Llama-3-70B,80,8192,64,128,128256,4,,A100,4,,,,,,,tokens_per_s,1,tok/s,x,Hybrid TP = 2 and PP = 2; input = output = 64",
        ],
    );
    let e = |i: usize| list[i].execution.clone().unwrap();
    assert_eq!((e(0).schedule, e(0).chunks, e(0).recompute), (Schedule::Interleaved, 3, Recompute::Selective));
    assert!(e(0).sequence_parallel);
    assert_eq!((e(1).dp, e(1).cp, e(1).chips()), (8, 16, 16384));
    let model = list[1].model.as_ref().unwrap();
    assert_eq!((model.kv_heads(), model.ffn(), model.gated), (8, 53248, true));
    assert_eq!(e(2).zero, Zero::Weights);
    assert_eq!((list[2].class, list[0].class), (Class::TrainingPublished, Class::Korthikanti));
    // Degrees that nothing states are searched.
    assert_eq!((&list[3].incomplete, &list[3].execution), (&None, &None));
    assert!(list[3].assumed.iter().any(|a| a.contains("fastest degrees")), "{:?}", list[3].assumed);
    assert!(list[4].incomplete.as_deref().unwrap().contains("= 64 are not its 96 chips"));
    assert_eq!((e(5).tp, e(5).pp, e(5).dp), (2, 2, 1));
    assert_eq!(list[5].task, Task::Inference { prompt: 64, generated: 64, phase: Phase::Whole });
    assert_eq!((list[5].model.as_ref().unwrap().seq, list[5].model.as_ref().unwrap().generated), (64, Some(64)));
}

struct Fixed(f64);

impl Predictor for Fixed {
    fn predict(&self, point: &Point) -> Result<Prediction, NotPredicted> {
        if point.row.id == "none" { Err(NotPredicted::because("a test")) } else { Ok(Prediction::Seconds(self.0)) }
    }
}

/// Times of 1, 2, 4 and 8 s predicted as 4 s: errors of +300, +100, 0 and -50 %.
#[test]
fn classes_are_summed_up() {
    let row = |id: &str, value: f64| format!("{id},matmul M=2 N=2 K=2,A100,time,{value},s");
    let rows = [row("a", 1.0), row("b", 2.0), row("c", 4.0), row("d", 8.0), row("none", 1.0)];
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let bounds: Bounds =
        Reader::read(&Node::parse("b", "{classes: {products: {mape_pct: 112.5, reason: x}}}").unwrap()).unwrap();
    let scores = score(points("id,workload,accelerator,metric,value,unit", &rows), Vec::new(), &Fixed(4.0), &bounds);
    let class = &scores.classes[0];
    assert_eq!((class.points, class.n), (5, 4));
    assert_eq!((class.mape_pct, class.median_pct, class.worst_pct, class.bias_pct), (112.5, 75.0, 300.0, 87.5));
    assert_eq!((class.worst.as_str(), class.bound), ("a", Some((112.5, 37.5))));
    let violations = scores.violations();
    assert!(violations.len() == 1 && violations[0].contains("signed error +87.50 %"), "{violations:?}");
    let json = report::json(&scores);
    assert_eq!(json["classes"][0]["mape_pct"], 112.5);
    assert_eq!((&json["rows"][0]["error_pct"], &json["rows"][4]["reason"]), (&300.0.into(), &"a test".into()));
    assert!(report::csv(&scores).unwrap().contains("none,products,1,,s,,a test,,"));
    assert!(report::text(&scores).contains("WORSE"));
}

/// Products of 2 GFLOP in 1 s and of 4 GFLOP in 3 s, from two sources, predicted as 4 s: a look-up scales the other's time by FLOP; one factor of the other source makes
/// 4 s of 1 s, or 4/3 s of 4 s.
#[test]
fn what_a_look_up_and_the_other_source_make_of_a_class() {
    let rows = ["a,matmul M=1000 N=1000 K=1000,A100,time,1,s,one", "b,matmul M=2000 N=1000 K=1000,A100,time,3,s,two"];
    let list = points("id,workload,accelerator,metric,value,unit,source", &rows);
    let scores = score(list, Vec::new(), &Fixed(4.0), &bounds().unwrap());
    let class = &scores.classes[0];
    // 3 s / 2 beside 1 s, 1 s x 2 beside 3 s.
    within(class.neighbour_pct.unwrap(), (50.0 + 100.0 / 3.0) / 2.0, 1e-12);
    // 4 s by the factor of b is 3 s beside 1 s, by that of a 1 s beside 3 s.
    within(class.left_out_pct.unwrap(), (200.0 + 200.0 / 3.0) / 2.0, 1e-12);
}

#[test]
fn chips_and_lengths_from_words() {
    assert_eq!(notes::lengths("LLM inference X ISL128 OSL2048", ""), Some((128, 2048)));
    assert_eq!(notes::lengths("GPT 175B inference (input 512, output 32)", ""), Some((512, 32)));
    assert_eq!(
        (notes::lengths("", "batch 16, input 1024, one token"), notes::lengths("LLM", "")),
        (Some((1024, 1)), None)
    );
    let list = points(
        TRAIN,
        &["a,GPT train,6,1600,25,1024,50257,16,16,SN30,0.5,1,1,1,,,,rdu_latency,0.666,s,x,compile mode O3"],
    );
    assert_eq!((list[0].row.share_of_chip, list[0].row.chips, list[0].class), (Some(0.5), Some(1), Class::Dataflow));
    let models = Models { machines: super::machines::shipped().unwrap() };
    let seconds = |metric: Metric| {
        let mut point = list[0].clone();
        point.row.metric = metric;
        match models.predict(&point) {
            Ok(Prediction::Seconds(s)) => s,
            other => panic!("{other:?}"),
        }
    };
    // The step is what the chip takes and what the host takes; half a chip as measured, within 2 %.
    within(seconds(Metric::Time), seconds(Metric::DeviceTime) + seconds(Metric::HostTime), 1e-9);
    within(seconds(Metric::DeviceTime), 0.666, 0.02);
}

#[test]
fn bounds_name_classes_that_there_are() {
    let wrong = Node::parse("b.yaml", "classes:\n  megatron: {mape_pct: 1, reason: x}\n").unwrap();
    let problems = Reader::read::<Bounds>(&wrong).unwrap_err().to_string();
    assert!(problems.contains("b.yaml:2: classes.megatron: no class; classes: megatron-sc21"), "{problems}");
    assert_eq!(bounds().unwrap().of(Class::Memory).map(|b| b.mape_pct), Some(2.0));
}

/// Korthikanti's memory within 2 %, and every run of figure 1 on its side of 80 GB.
#[test]
fn memory_is_within_its_bound() {
    let suite = SUITES.iter().find(|s| s.name == "memory").unwrap();
    let points: Vec<Point> = suite.read().unwrap().rows.into_iter().map(Point::new).collect();
    let scores =
        score(points, Vec::new(), &Models { machines: super::machines::shipped().unwrap() }, &bounds().unwrap());
    for class in &scores.classes {
        assert_eq!(class.points, class.n, "{}", class.class);
        assert!(class.mape_pct <= 0.05, "{}: {} %", class.class, class.mape_pct);
    }
    assert_eq!(
        scores.classes.iter().map(|c| (c.class, c.n)).collect::<Vec<_>>(),
        [(Class::Memory, 12), (Class::Fit, 8)]
    );
}

/// What the runs of a source have in common, degrees that follow, and rows that cannot have run as they stand.
#[test]
fn sources_say_what_rows_leave_out() {
    let mlperf = "https://github.com/mlcommons/training_results_v5.0/tree/x,gradient accumulation";
    let list = points(
        TRAIN,
        &[
            &format!(
                "a,Llama-3.1 405B pre-train (MLPerf),126,16384,128,8192,128256,448,,GB200,256,4,8,4,,,,train_step_time,19,s,{mlperf} 112.0"
            ),
            &format!("b,BERT-large (MLPerf),24,1024,16,512,30522,768,,GB200,8,,,,,,,train_step_time,0.06,s,{mlperf} 1"),
            "c,LLAMA2-7B SFT,32,4096,32,4096,32000,32,1,H100-80GB,8,1,1,8,,,,tokens_per_s_per_gpu,16891,tok/s/GPU,https://github.com/NVIDIA/NeMo/blob/x,packed SQuAD",
            "d,Llama-3 8B train,32,4096,32,8192,128256,8,1,B200,8,1,1,8,,,,tokens_per_s_per_gpu,9000000,tok/s/GPU,x,BF16",
        ],
    );
    let e = |i: usize| list[i].execution.clone().unwrap();
    // 4 x 8 x 4 chips of 256: the rest divides the sequences. 448 samples in 112 passes of 4 replicas.
    assert_eq!((e(0).cp, e(0).micro_batch, e(0).zero, e(0).sequence_parallel), (2, 1, Zero::Optimizer, true));
    assert_eq!(list[0].notes.precision, Some(crate::workload::language::DataType::Fp8));
    // Half of BERT's tokens are padding; 768 samples at once are those of 8 replicas.
    assert_eq!((list[1].model.as_ref().unwrap().seq, e(1).dp, e(1).micro_batch), (256, 8, 96));
    assert!(list[2].model.as_ref().unwrap().window.is_some_and(|w| w < 200));
    let models = Models { machines: machines::shipped().unwrap() };
    let why = models.predict(&list[3]).unwrap_err().to_string();
    assert!(why.contains("times the peak"), "{why}");
}

/// What is no language model is trained as the graph that it is. A look-up of 26 tables of 128 numbers in 32 bits for each of 65,536 clicks is read, and read and
/// written again: 2.6 GB, which no memory of 1.6 TB/s moves faster than in 1.6 ms. Batches in tokens become sentences, those of a chip the batch of all.
#[test]
fn graphs_and_batches_of_other_units() {
    let source = "https://github.com/NVIDIA/DeepLearningExamples/blob/x";
    let list = points(
        TRAIN,
        &[
            &format!(
                "a,DLRM training (small Criteo model),,,,,,65536,,A100-40GB,1,,,,,,,samples_per_s,4e6,samples/s,{source},FP16 mixed"
            ),
            &format!(
                "b,DLRM training (small Criteo model),,,,,,65536,,A100-40GB,1,,,,,,,samples_per_s,4e6,samples/s,{source},TF32"
            ),
            &format!(
                "c,Transformer-big training,12,1024,16,,,81920,10240,A100-40GB,8,1,1,8,,,,tokens_per_s,5e5,tok/s,{source},FP16 mixed"
            ),
            &format!(
                "d,ResNet-50 v1.5 training,,,,,,,,V100-16GB,8,1,1,8,,,,samples_per_s,8e3,images/s,{source},FP16 mixed"
            ),
            "e,DLRM-dcnv2 training,,,,,,65536,,A100-40GB,8,,,,,,,samples_per_s,4e6,samples/s,x,TF32",
        ],
    );
    let models = Models { machines: machines::shipped().unwrap() };
    let seconds = |i: usize| match models.predict(&list[i]) {
        Ok(Prediction::Seconds(seconds)) => seconds,
        other => panic!("{other:?}"),
    };
    let least = 3.0 * 26.0 * 128.0 * 4.0 * 65536.0 / 1.6e12;
    assert!((least..20.0 * least).contains(&seconds(0)) && seconds(1) > seconds(0), "{} {}", seconds(0), seconds(1));
    let (row, model) = (&list[2].row, list[2].model.as_ref().unwrap());
    assert_eq!((row.global_batch, row.micro_batch, model.seq, model.crossing()), (Some(2560), Some(320), 32, 0.5));
    assert_eq!(list[3].row.global_batch, Some(2048));
    // 24.5 GFLOP an image at the chip's 125 TFLOP/s at best.
    assert!(seconds(3) > 256.0 * 24.5e9 / 125e12);
    assert!(matches!(list[4].task, Task::Other { .. }));
}

/// Beside the checkout there may be more measured points: each is classified, and what is left out says why.
#[test]
fn points_beside_the_checkout_are_classified() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(folder) = ["../shared", "../../shared"]
        .iter()
        .map(|up| root.join(up).join("reference/measured"))
        .find(|folder| folder.is_dir())
    else {
        println!("skipped: no reference/measured beside the checkout");
        return;
    };
    let read = |name: &str| -> Vec<Point> {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        read::read(name, &bytes).unwrap_or_else(|e| panic!("{e}")).rows.into_iter().map(Point::new).collect()
    };
    let count = |points: &[Point], class: Class| points.iter().filter(|p| p.class == class).count();
    let published = read("published_points.csv");
    assert_eq!(published.len(), 246);
    assert_eq!(count(&published, Class::MegatronSc21), 20);
    assert_eq!(count(&published, Class::Memory), 12);
    assert_eq!((count(&published, Class::InferenceKernels), count(&published, Class::Products)), (71, 19));
    assert_eq!(count(&published, Class::Hpl), 7);
    for point in &published {
        let ready = point.incomplete.is_some() || matches!(point.task, Task::Other { .. } | Task::Hpl);
        let needs =
            matches!(point.task, Task::Training | Task::Memory | Task::Inference { .. } | Task::LayerKernel { .. });
        let executed = point.execution.is_some() || point.task == Task::Training;
        assert!(ready || !needs || (point.model.is_some() && executed), "{}", point.row.id);
        // A time of one second must be expressible in every row that is complete.
        if needs && point.incomplete.is_none() && point.task != Task::Memory {
            express(point, &Prediction::Seconds(1.0)).unwrap_or_else(|e| panic!("{}: {e}", point.row.id));
        }
    }
    let (multi, single) = (read("vtrain_multi_node.csv"), read("vtrain_single_node.csv"));
    assert_eq!(count(&multi, Class::VtrainMultiNode), multi.len());
    assert_eq!(count(&single, Class::VtrainSingleNode), single.len());
    for point in multi.iter().chain(&single) {
        assert_eq!(point.incomplete, None, "{}", point.row.id);
        let batch = point.row.global_batch.unwrap();
        assert!(point.execution.as_ref().unwrap().microbatches(batch).is_ok(), "{}", point.row.id);
    }
}
