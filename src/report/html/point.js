
// One point: its plan, what limits it, what is proven of it; or why it has no plan.
const PARTS = [["compute", "compute_s"], ["dram", "dram_s"], ["network", "network_s"], ["overhead", "overhead_s"]];
const partColour = i => `var(--${PARTS[i]?.[0] ?? "rest"})`;

/** A bar of parts in the same unit, out of a whole; a part that is zero is left out. */
function bar(parts, whole) {
  const held = parts.filter(([, v]) => v > 0);
  const of = whole || held.reduce((sum, [, v]) => sum + v, 0);
  if (!held.length || !(of > 0)) return null;
  const share = v => `${digits(100 * v / of, 3)} %`;
  return [
    el("div", { class: "bar", role: "img", "aria-label": held.map(([name, v]) => `${name} ${share(v)}`).join(", ") }, held.map(([, v, , c]) => el("i", { style: `width:${100 * v / of}%;background:${c}` }))),
    el("div", { class: "parts" }, held.map(([name, v, unit, c]) => el("span", {}, el("i", { class: "swatch", style: `background:${c}` }), `${name} ${shown(unit, v)} (${share(v)})`))),
  ];
}
const barOf = (row, parts, whole) => bar(parts.map(([name, column], i) => [name, number(column, row), column, i < 6 ? colour(i) : "var(--rest)"]), whole);

function drawPoint() {
  const row = state.chosen, box = byId("point");
  if (row === null) {
    box.replaceChildren(el("h3", {}, "No point chosen"), el("p", { class: "quiet" }, "Click a point of the chart, a row of the table or a cell of the heat map: its plan and what limits it stand here."));
    return;
  }
  const text = (name, v) => [name, v];
  const read = (name, column) => [name, cell(column, row)];
  box.replaceChildren(el("h3", {}, label(row)), ...[
    facts([text("point", cell("point", row)), ...(data.axes.length > 1 ? data.axes.map(axis => read(axis, axis)) : []), read("workload", "workload"), read("system", "system"), read("chips", "chips")]),
    ...(hasPlan(row) ? [...main(row), ...plan(row), ...times(row), ...partitions(row), ...memory(row), ...money(row), ...proofOf(row), ...rest(row)] : [...without(row), ...money(row), ...rest(row)]),
  ].filter(Boolean));
}
const section = (title, ...content) => { const held = content.flat().filter(Boolean); return held.length ? [el("h3", {}, title), ...held] : []; };

function main(row) {
  const names = [state.y, state.x, "samples_per_s", "tokens_per_s", "iteration_s", "ttft_s", "last_ttft_s", "tpot_s", "utilization", "bottleneck"].filter(name => name !== "chips");
  return [facts([...new Set(names)].map(name => [name, cell(name, row)]))];
}
function plan(row) {
  const names = ["tp", "pp", "dp", "cp", "ep", "network_use", "process_grid", "tile_count", "micro_batch", "microbatches", "stage_layers", "weights_on_chip", "schedule", "chunks", "recompute",
    "sequence_parallel", "zero", "offload", "overlap_dp", "overlap_tp", "software", "served_batch", "served_at_once", "place_cores_name", "place_cores_used", "place_actors", "place_replicas"];
  return section("Plan", facts(names.map(name => [name.replaceAll("_", " "), cell(name, row)])), value("network_use", row) === null ? null : el("p", { class: "quiet" }, "Network use: TP x PP x DP along each dimension, the inner first."));
}
function times(row) {
  const total = number("iteration_s", row);
  const parts = [["work", "work_s"], ["bubble", "bubble_s"], ["hand-over", "p2p_s"], ["gradients", "gradient_s"], ["optimiser", "optimizer_s"]];
  const sum = parts.reduce((all, [, column]) => all + (number(column, row) || 0), 0);
  // Parts of an iteration are shares of it only where they make it up.
  const whole = Math.abs(sum - total) <= 1e-3 * total;
  const listed = whole ? barOf(row, parts, total) : null;
  const others = ["recompute_s", "exposed_tp_s", "exposed_cp_s", "exposed_ep_s", "host_s", "offload_s", "place_bottleneck_s", "place_across_s", "place_latency_s"];
  return section("Time of an iteration", listed, facts([...(whole ? [] : parts.map(([name, column]) => [name, cell(column, row)])), ...others.map(name => [name.replaceAll("_", " ").replace(/ s$/, ""), number(name, row) > 0 ? cell(name, row) : null])]));
}
function partitions(row) {
  const layer = bar(PARTS.map(([name, column], i) => [name, number(column, row), column, partColour(i)]));
  const kernels = String(value("fusion_mapping", row) ?? "").split("|"), seconds = String(value("partition_times_s", row) ?? "").split("|");
  const body = kernels[0] === "" ? [] : kernels.map((names, i) => {
    const parts = (seconds[i] ?? "").split("/").map(Number);
    const most = parts.reduce((a, v, j) => v > parts[a] ? j : a, 0);
    return [el("p", { class: "part" }, el("b", {}, `${i + 1}, limited by ${PARTS[most]?.[0] ?? "?"}: `), names.replaceAll("+", ", ")), bar(PARTS.map(([name], j) => [name, parts[j], "t_s", partColour(j)]))];
  });
  const sharding = String(value("sharding", row) ?? "");
  return section("What limits a layer pass", layer,
    layer ? el("p", { class: "quiet" }, "Busy time of compute, DRAM, network and overhead; those that overlap run at the same time, and the longest limits.") : null,
    body.length ? el("details", { open: body.length <= 8 }, el("summary", {}, `${body.length} partition${body.length > 1 ? "s, one after another" : ""}`), body.flat(2).filter(Boolean)) : null,
    sharding ? el("details", {}, el("summary", {}, "sharding of each kernel"), plainTable(["kernel", "strategy"], sharding.split(";").map(pair => { const at = pair.lastIndexOf(":"); return [pair.slice(0, at), pair.slice(at + 1)]; }))) : null);
}
function memory(row) {
  const parts = [["weights", "weights_bytes"], ["gradients", "gradients_bytes"], ["optimiser", "optimizer_bytes"], ["activations", "activations_bytes"], ["held", "held_bytes"], ["caches", "caches_bytes"], ["waiting", "live_bytes"]];
  const capacity = number("capacity_bytes", row);
  return section("Memory of a chip", barOf(row, parts, Number.isFinite(capacity) ? capacity : null),
    facts([["all", cell("total_bytes", row)], ["capacity", Number.isFinite(capacity) ? cell("capacity_bytes", row) : null], ["SRAM at most", cell("sram_peak_bytes", row)], ["second tier", number("second_tier_bytes", row) > 0 ? cell("second_tier_bytes", row) : null]]));
}
function money(row) {
  const parts = unit => ["chips", "memory", "links", "switches"].map(part => [part, `${part}_${unit}`]);
  return [
    ...(number("cost_usd", row) > 0 ? section(`Price ${cell("cost_usd", row)}`, barOf(row, parts("usd"), number("cost_usd", row))) : []),
    ...(number("power_w", row) > 0 ? section(`Power ${cell("power_w", row)}`, barOf(row, parts("w"), number("power_w", row))) : []),
  ];
}
const STATUS = {
  optimal: "Proven: no mapping of the space that was searched is better, within the gap.",
  time_limit: "Not proven best: the search was stopped at its limit of seconds. The plan is valid, the bound says how much better another could be.",
  node_limit: "Not proven best: the search was stopped at its limit of nodes. The plan is valid, the bound says how much better another could be.",
  blind: "Not proven best: chosen by a search that did not see all costs, and priced with all.",
  infeasible: "No plan exists.",
  failed: "Could not be solved.",
};
const gapOf = row => { const gap = number("gap", row); return Number.isFinite(gap) ? shown("gap", gap) : ""; };
function proofOf(row) {
  const unit = { s: "b_s", J: "b_j", $: "b_usd" }[value("objective_unit", row)] ?? "b";
  const covers = value("covers_sharding", row);
  return section("Proof", el("p", {}, STATUS[value("status", row)] ?? `Status: ${value("status", row)}.`),
    facts([["minimised", value("minimized", row)], ["found", shown(unit, value("objective", row), 6)], ["bound", shown(unit, value("bound", row), 6)], ["gap", gapOf(row)], ["by", String(value("proof", row) ?? "").replaceAll("_", " ")],
      ["over shardings", covers === "true" ? "all" : covers === "false" ? "given that of each assignment" : null], ["engine", value("solver", row)], ["reproducible", value("reproducible", row)],
      ["error band", cell("error_band_pct", row)]]));
}
function without(row) {
  const unit = value("short_unit", row) ?? "";
  const amount = name => { const v = value(name, row); return v === null ? null : `${typeof v === "number" ? prefixed(v).join(" ") : v}${unit && typeof v === "number" ? unit : ""}`; };
  return section("No plan", el("p", {}, value("reason", row) ?? STATUS[value("status", row)] ?? ""), facts([["short of", value("short_of", row)], ["needed", amount("short_needed")], ["there", amount("short_available")], ["what would mend it", value("short_remedy", row)]]));
}
function rest(row) {
  const all = [...columns.values()].filter(c => value(c.name, row) !== null && !["fusion_mapping", "partition_times_s", "sharding"].includes(c.name));
  return [el("details", {}, el("summary", {}, `all ${all.length} columns`), plainTable(["column", "value", "meaning"], all.map(c => [c.name, String(value(c.name, row)), c.doc])))];
}
