//! Points of a study share what bandwidths and latencies do not change: trees, parts, amounts, answers. Each row must be what its
//! point gives alone.

use flowspace::check;
use flowspace::mapping::{cache, map};
use flowspace::report::csv::{COLUMNS, Facts, Outcome, values};
use flowspace::study::{RunOptions, Study, run};
use std::path::PathBuf;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Dataflow chips and others, by constant efficiency and by lanes and stages; sizes, capacities (some too small), bandwidths.
const STUDY: &str = "
name: mixed
workload:
  {kind: dfmodel_layer, name: tiny, source: made up, hidden: 256, heads: 8, head_dim: 32, seq: 64, layers: 4, pass: training,
   global_batch: 16}
system:
  name: chips
  source: made up
  chip: &chip
    {name: plain, source: assumed here, style: kernel_by_kernel, cores: 16, lanes: 8, stages: 4, frequency: 1 GHz, sram: 200 kB,
     efficiency: 0.9, launch_overhead: 1 us, price: $100, power: 10 W}
  memory: {name: mem, source: assumed here, bandwidth: 100 GB/s, capacity: 1 GB, price: $1/(GB/s), power: 0.1 W/(GB/s)}
  network:
    topology: torus-2d
    dimensions:
      - {size: 2, link: &link {name: wire, source: assumed here, bandwidth: 10 GB/s, latency: 1 us, price: $1/(GB/s), power: 0.1 W/(GB/s)}}
      - {size: 4, link: *link}
axes:
  - name: memory
    field: system.memory.bandwidth
    values: [20 GB/s, 300 GB/s]
  - name: chip
    points:
      plain: {system.chip.style: kernel_by_kernel}
      dataflow: {system.chip.style: dataflow}
      quantised: {system.chip.style: dataflow, system.chip.efficiency: lanes_stages}
  - name: size
    points:
      four: {system.network.dimensions.1.size: 2}
      eight: {system.network.dimensions.1.size: 4}
  - name: room
    field: system.memory.capacity
    values: [1 GB, 7 MB, 1 MB]
  - name: link
    field: system.network.dimensions.*.link.bandwidth
    values: [2 GB/s, 40 GB/s]
  - name: batch
    field: workload.micro_batch
    values: [1, 2]
solve: {sharding: two_pass}
";

#[test]
fn each_row_is_what_its_point_gives_alone() {
    let folder = Folder(std::env::temp_dir().join(format!("flowspace-sharing-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let file = folder.0.join("study.yaml");
    std::fs::write(&file, STUDY).unwrap();
    let options = RunOptions { jobs: 2, ..RunOptions::new(folder.0.join("out")) };
    let summary = run(Study::load(&file).unwrap(), &options).unwrap();
    assert!(summary.failed == 0 && summary.infeasible > 20 && summary.optimal > 20, "{summary:?}");
    let mut rows = csv::Reader::from_path(&summary.results).unwrap();
    let header = rows.headers().unwrap().clone();
    let first = header.iter().position(|name| name == COLUMNS[0].name).unwrap();
    let mut count = 0;
    for (index, row) in rows.records().enumerate() {
        // Nothing is left of the points before.
        cache::clear();
        let point = Study::load(&file).unwrap().point(index as u64).unwrap();
        let outcome: Outcome = map(&point.workload, point.system.as_ref().unwrap(), &point.request()).unwrap().into();
        if let Outcome::Mapped(plan, _) = &outcome {
            check::verify(plan).unwrap();
        }
        let facts =
            Facts { workload: Some(&point.workload), system: point.system.as_ref(), fitted: None, outcome: &outcome };
        let (alone, row) = (values(&facts), row.unwrap());
        for (i, column) in COLUMNS.iter().enumerate() {
            assert_eq!(alone.get(i), row.get(first + i), "{} of point {index}", column.name);
        }
        count += 1;
    }
    assert_eq!(count, summary.points);
}
