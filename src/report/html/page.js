
// The page: what the controls say, the table of points, what is proven, where it comes from; and what follows a choice.
const TABLE_ROWS = 50;
const tableColumns = new Set();

function choose(row, seen = false) {
  state.chosen = row;
  restyle();
  heatChosen();
  drawRows();
  drawPoint();
  history.replaceState(null, "", `#point=${value("point", row)}`);
  // From a table or a map further down the plan may be out of sight.
  if (seen) {
    const box = byId("point").getBoundingClientRect();
    if (box.top < 0 || box.top > window.innerHeight * 0.8) byId("point").scrollIntoView({ block: "start" });
  }
}
function filtered() {
  state.page = 0;
  restyle();
  drawRanges();
  drawRows();
}
function redraw() {
  drawScatter();
  drawRanges();
  drawFilters();
  drawRows();
  drawHeat();
  drawSays();
}

function controls() {
  const numeric = [...columns.values()].filter(c => c.number && c.name !== "point").map(c => [c.name, c.name]);
  const names = [["", "(none)"], ...[...new Set([...data.axes, "workload", "chip_name", "memory_name", "topology_name", "status", "bottleneck", "short_of"])].filter(name => columns.has(name) && distinct(name).length > 1 && distinct(name).length <= 35).map(name => [name, name])];
  const axis = (key, log) => v => {
    state[key] = v;
    state[log] = wantsLog(v, ofWorkload());
    state.brush = { x: null, y: null };
    controls();
    redraw();
  };
  byId("controls").replaceChildren(...[
    workloads.length > 1 ? choice("workload", [...workloads.map(w => [w, w]), ["", "all, a front each"]], state.workload, v => { state.workload = v; state.brush = { x: null, y: null }; redraw(); }) : null,
    choice("x", numeric, state.x, axis("x", "logX")), tick("log", state.logX, v => { state.logX = v; redraw(); }),
    choice("y", numeric, state.y, axis("y", "logY")), tick("log", state.logY, v => { state.logY = v; redraw(); }),
    choice("colour", names, state.group ?? "", v => { state.group = v || null; redraw(); }),
  ].filter(Boolean));
}
/** The brushes as numbers, for those who do not use a pointer. */
function drawRanges() {
  const range = key => {
    const name = state[key], at = state.brush[key];
    const set = end => event => {
      const now = state.brush[key] ?? [-Infinity, Infinity];
      now[end] = event.target.value === "" ? (end ? Infinity : -Infinity) : Number(event.target.value);
      state.brush[key] = now.every(v => !Number.isFinite(v)) ? null : now;
      filtered();
    };
    const box = end => el("input", { type: "number", step: "any", "aria-label": `${name} ${end ? "at most" : "at least"}`, placeholder: end ? "to" : "from", value: at && Number.isFinite(at[end]) ? Number(at[end].toPrecision(4)) : "", onchange: set(end) });
    return el("span", {}, `${name} `, box(0), " – ", box(1));
  };
  byId("ranges").replaceChildren(range("x"), range("y"), el("button", { type: "button", id: "clear", disabled: !isBrushed(), onclick: clearBrush }, "Clear brush"));
}
function drawFilters() {
  const rows = ofWorkload();
  byId("filters").replaceChildren(...data.axes.filter(axis => axis !== "workload").map(axis => {
    const names = distinct(axis, rows);
    if (names.length < 2 || names.length > 40) return null;
    const off = state.hidden.get(axis) ?? new Set();
    const chip = name => el("button", { type: "button", class: "chip", "aria-pressed": String(!off.has(name)), onclick: event => {
      if (off.has(name)) off.delete(name); else off.add(name);
      state.hidden.set(axis, off);
      event.target.setAttribute("aria-pressed", String(!off.has(name)));
      filtered();
    } }, name === "" ? "(none)" : name);
    return el("fieldset", {}, el("legend", {}, axis), names.map(chip));
  }).filter(Boolean));
}

function selected() {
  const onFront = state.frontOnly ? new Set(fronts().flat()) : null;
  return ofWorkload().filter(row => labelled(row) && brushed(row) && (!onFront || onFront.has(row)));
}
function sorted(rows) {
  if (!state.sort) return rows;
  const { name, down } = state.sort, sign = down ? -1 : 1;
  const compare = isNumber(name) ? (a, b) => number(name, a) - number(name, b) : (a, b) => String(value(name, a) ?? "").localeCompare(String(value(name, b) ?? ""));
  const has = row => value(name, row) !== null;
  // Rows without a value stand last, whichever way.
  return [...rows].sort((a, b) => has(b) - has(a) || (has(a) && sign * compare(a, b)) || a - b);
}
function drawRows() {
  const onFront = new Set(fronts().flat());
  const rows = sorted(selected());
  const pages = Math.max(1, Math.ceil(rows.length / TABLE_ROWS));
  state.page = Math.min(state.page, pages - 1);
  const shownRows = rows.slice(state.page * TABLE_ROWS, (state.page + 1) * TABLE_ROWS);
  const names = [...new Set(["point", ...data.axes, ...tableColumns])].filter(name => columns.has(name));
  const head = name => {
    const by = state.sort?.name === name ? (state.sort.down ? "descending" : "ascending") : null;
    const order = () => { state.sort = { name, down: by ? !state.sort.down : turn(name) < 0 }; drawRows(); };
    return el("th", { scope: "col", class: isNumber(name) ? "number" : null, "aria-sort": by, title: columns.get(name).doc }, el("button", { type: "button", onclick: order }, name + ({ ascending: " ▲", descending: " ▼" }[by] ?? "")));
  };
  const line = row => el("tr", { "data-row": row, class: row === state.chosen ? "chosen" : null, onclick: () => choose(row, true) },
    names.map((name, i) => el("td", { class: isNumber(name) ? "number" : null }, i === 0 ? el("button", { type: "button", class: "link", "aria-label": `Show point ${cell(name, row)}` }, `${cell(name, row)}${onFront.has(row) ? " ◆" : ""}`) : cell(name, row, 5))));
  byId("rows").replaceChildren(el("thead", {}, el("tr", {}, names.map(head))), el("tbody", {}, shownRows.map(line)));
  const turnPage = by => () => { state.page += by; drawRows(); };
  byId("pages").replaceChildren(el("span", { "aria-live": "polite", id: "count" }, `${rows.length} of ${data.rows} points${rows.length > TABLE_ROWS ? `, ${state.page * TABLE_ROWS + 1} to ${state.page * TABLE_ROWS + shownRows.length} shown` : ""}`),
    ...(pages > 1 ? [el("button", { type: "button", disabled: state.page === 0, onclick: turnPage(-1) }, "Before"), el("button", { type: "button", disabled: state.page === pages - 1, onclick: turnPage(1) }, "Next")] : []),
    el("span", { class: "quiet" }, "◆ on the front. Brushes and labels above choose the rows."));
}
function tableControls() {
  ["status", state.x, state.y, "samples_per_s", "tokens_per_s", "utilization", "bottleneck", "tp", "pp", "dp", "gap"].filter(name => columns.has(name)).forEach(name => tableColumns.add(name));
  if (everyRow.some(row => !hasPlan(row))) tableColumns.add("short_of");
  const pick = [...columns.values()].filter(c => !["point", ...data.axes].includes(c.name)).map(c => tick(c.name, tableColumns.has(c.name), on => { if (on) tableColumns.add(c.name); else tableColumns.delete(c.name); drawRows(); }));
  byId("table-controls").replaceChildren(tick("the front alone", state.frontOnly, v => { state.frontOnly = v; state.page = 0; drawRows(); }), el("details", {}, el("summary", {}, "columns"), el("div", { class: "pick" }, pick)));
}

const sentence = text => text.charAt(0).toUpperCase() + text.slice(1);
const percent = share => `${digits(100 * share, 4)} %`;
/** What a search of the front proved, as far as it went. */
function proofText() {
  const proof = data.proof;
  if (!proof) return null;
  const open = proof.open?.points ?? 0;
  const between = proof.continuous_axes?.length ? `, and nothing between the values of ${proof.continuous_axes.join(", ")},` : "";
  const point = `point of the space${between}${proof.could_not_be_solved?.points > 0 ? " that could be solved" : ""}${proof.states_no_price_or_power?.points > 0 ? " that states its price and power" : ""}`;
  const wide = proof.too_wide_axes?.length && !open ? ` The intervals of ${proof.too_wide_axes.join(", ")} are too wide for the tolerance of ${percent(proof.asked_within)}.` : "";
  const near = Number.isFinite(proof.within) ? proof.within === 0 ? `no other ${point} is better than the front` : `no ${point} is better than one of the front by more than ${percent(proof.within)} in any objective` : open ? "nothing is proven yet" : "nothing that was solved keeps the constraints; of what lies between nothing is proven";
  return `${open ? "So far: " : "Proven: "}${near}. Given: the order of ${proof.unordered_axes?.length ? `the axes but ${proof.unordered_axes.join(", ")}` : "every axis"}, checked on all solved points.${wide}`;
}
function drawSays() {
  const lines = fronts().map((rows, i) => [state.workload === "" ? workloads[i] : state.workload, rows.length]);
  const ways = name => ({ higher: "most", lower: "least" })[columns.get(name)?.better];
  const known = provenFront() !== null;
  const found = ways(state.x) && ways(state.y)
    ? `${lines.map(([name, count]) => `${count} point${count === 1 ? "" : "s"}${workloads.length > 1 ? ` of ${name}` : ""}`).join(", ")}: ${ways(state.y)} ${state.y}, ${ways(state.x)} ${state.x}; no other ${known ? "point of the study's front" : "solved point of the workload"} is as good in both and better in one.`
    : "One of the two columns does not say which values are better, so there is no front.";
  byId("front-says").replaceChildren(found);
}
function drawHead() {
  const manifest = data.manifest;
  byId("title").textContent = data.title || "Results";
  byId("question").textContent = manifest?.question ?? "";
  byId("question").hidden = !manifest?.question;
  const counts = distinct("status").map(status => `${everyRow.filter(row => String(value("status", row) ?? "") === status).length} ${{ optimal: "proven optimal", time_limit: "stopped by time", node_limit: "stopped by nodes", blind: "chosen blindly" }[status] ?? status}`);
  const each = data.proof?.workloads ? data.proof.workloads + 1 : 1;
  const grid = data.proof ? data.proof.points * each : manifest?.points;
  byId("counts").textContent = `${data.rows} point${data.rows === 1 ? "" : "s"}${grid && grid !== data.rows ? ` solved of ${grid}` : ""}: ${counts.join(", ")}.`;
  const aims = [["samples_per_s", "Most samples/s"], ["generated_per_s", "Most generated tokens/s"], ["samples_per_s_per_musd", "Most samples/s per M$"], ["samples_per_s_per_mw", "Most samples/s per MW"], ["j_per_sample", "Least energy per sample"], ["place_bottleneck_s", "Fastest slowest core"]];
  // Of a search the points of the front alone keep its constraints, and in its objectives alone is the best of them the best of all.
  const points = data.proof ? new Set(data.proof.front) : null;
  const proven = points && new Set(everyRow.filter(row => points.has(value("point", row))));
  const asked = aims.filter(([column]) => !proven || data.proof.objectives.some(aim => aim.endsWith(` ${column}`)));
  // By workload: across workloads none of these can be compared.
  const cards = workloads.length > 3 ? [] : workloads.flatMap(name => asked.map(([column, title]) => {
    const rows = everyRow.filter(row => (!proven || proven.has(row)) && String(value("workload", row) ?? "") === name && number(column, row) > 0);
    if (rows.length < 2) return null;
    const best = rows.reduce((a, row) => turn(column) * number(column, row) < turn(column) * number(column, a) ? row : a);
    return el("div", { class: "card" }, el("span", { class: "quiet" }, workloads.length > 1 ? `${title}, ${name}` : title), el("b", {}, cell(column, best)), pointLink(best));
  }).filter(Boolean));
  byId("best").replaceChildren(...cards);
}
function drawProof() {
  const groups = new Map();
  for (const row of everyRow.filter(hasPlan)) {
    const key = JSON.stringify([value("status", row), value("proof", row), value("covers_sharding", row)]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const worst = rows => rows.reduce((a, row) => !(number("gap", a) >= number("gap", row)) ? row : a);
  const body = [...groups].sort((a, b) => b[1].length - a[1].length).map(([key, rows]) => {
    const [status, proof, covers] = JSON.parse(key);
    return [String(rows.length), status ?? "", String(proof ?? "").replaceAll("_", " "), covers === "true" ? "over all shardings" : covers === "false" ? "given the sharding of each assignment" : "", pointLink(worst(rows), gapOf(worst(rows)) || "-"), STATUS[status] ?? ""];
  });
  const proof = data.proof;
  const rules = proof ? [["solved", "solved"], ["no_better_than_a_solved_point", "not solved: no better than a solved point"], ["below_an_infeasible_corner", "not solved: no more of anything than a point without a plan"], ["keeps_no_constraint", "not solved: keep no constraint"], ["states_no_price_or_power", "not compared: their systems state no price or power"], ["could_not_be_solved", "not compared: the ends of their ranges could not be solved"], ["open", "open"]]
    .filter(([key]) => proof[key]?.points > 0).map(([key, text]) => [String(proof[key].points), percent(proof[key].share), text]) : [];
  byId("proof").replaceChildren(...[
    proof ? el("p", {}, `Search of the front of ${proof.objectives.join(", ")}${proof.constraints?.length ? ` with ${proof.constraints.join(", ")}` : ""}. ${proofText()}`) : null,
    proof ? plainTable(["points", "share", "of the space"], rules, [0, 1]) : null,
    body.length ? el("p", {}, "Each point is a search of its own for the best mapping of its workload on its system:") : null,
    body.length ? plainTable(["points", "status", "proven by", "", "largest gap", ""], body, [0, 4]) : null,
    el("p", { class: "quiet" }, "Proofs are of the model, not of silicon: how far predictions lie from measurements stands in the program's validation (flowspace validate). Points of the chart that are not proven are hollow."),
  ].filter(Boolean));
}
function drawWithout() {
  const rows = everyRow.filter(row => !hasPlan(row));
  byId("without-section").hidden = !rows.length;
  const groups = new Map();
  for (const row of rows) {
    // What fails has a reason of its own; what is infeasible is short of something.
    const key = value("status", row) === "failed" ? `failed: ${value("reason", row)}` : `short of ${value("short_of", row) ?? "?"}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const body = [...groups].sort((a, b) => b[1].length - a[1].length).map(([key, members]) => [String(members.length), key, pointLink(members[0]), value("reason", members[0]) ?? "", value("short_remedy", members[0]) ?? ""]);
  byId("without").replaceChildren(plainTable(["points", "why", "for example", "what it says", "what would mend it"], body, [0]));
}
function drawFrom() {
  const m = data.manifest;
  const digest = text => el("span", { class: "mono" }, text);
  const says = !m ? "There is no manifest.json beside the table: who made it and from what is not known."
    : data.vouched ? "The table is the one that the manifest names, byte for byte." : "The table is not the one that the manifest names: it was changed, or is another; what follows is of the run beside it.";
  byId("from").replaceChildren(...[
    el("p", data.vouched ? {} : { class: "note" }, says),
    facts([["study", m?.study ?? data.title], ["source", m?.source], ["program", m ? `flowspace ${m.version}` : null], ["commit", m ? digest(m.commit) : null], ["engines", m?.engines.join(", ")], ["model revision", m ? String(m.model_revision) : null],
      ["run ended", m?.ended], ["page made", `${data.made.date} by flowspace ${data.made.version}`], ["table (BLAKE3)", data.table ? digest(data.table) : null]]),
    m?.inputs.length ? el("details", {}, el("summary", {}, `${m.inputs.length} input files`), plainTable(["file", "BLAKE3"], m.inputs.map(i => [i.file, digest(i.blake3)]))) : null,
    el("p", { class: "quiet" }, `Numbers of ${data.exact.filter(name => columns.has(name)).join(", ")} are those of the table in full, all others in ${data.digits} digits.`),
    el("details", {}, el("summary", {}, "what the columns mean"), plainTable(["column", "better", "meaning"], [...columns.values()].map(c => [c.name, c.better ?? "", c.doc]))),
  ].filter(Boolean));
}

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(dark));
}
function start() {
  theme(matchMedia("(prefers-color-scheme: dark)").matches);
  byId("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme !== "dark"));
  const numeric = [...columns.values()].filter(c => c.number && c.name !== "point").map(c => c.name);
  [state.x, state.y] = data.pair ? [data.pair.x, data.pair.y] : [numeric[0] ?? "point", numeric[1] ?? "point"];
  state.workload = workloads.length > 1 ? workloads[0] : "";
  const groups = [...data.axes.filter(axis => axis !== "workload"), "chip_name"].filter(name => columns.has(name) && distinct(name).length > 1);
  state.group = groups.find(name => distinct(name).length <= 12) ?? null;
  [state.logX, state.logY] = [wantsLog(state.x, ofWorkload()), wantsLog(state.y, ofWorkload())];
  drawHead();
  controls();
  tableControls();
  heatStart();
  heatControls();
  // Of a search the cells would be the best of what was solved, not of what there is.
  byId("heat-section").hidden = Boolean(data.proof) || data.axes.every(axis => distinct(axis).length < 2);
  redraw();
  drawPoint();
  drawProof();
  drawWithout();
  drawFrom();
  const asked = /^#point=(\d+)$/.exec(location.hash);
  const row = asked ? everyRow.find(row => value("point", row) === Number(asked[1])) : undefined;
  if (row !== undefined) {
    if (state.workload !== "") {
      state.workload = String(value("workload", row) ?? "");
      controls();
      redraw();
    }
    choose(row);
  }
  let width = view.width;
  addEventListener("resize", () => {
    measure();
    if (view.width !== width) drawScatter();
    width = view.width;
  });
}
start();
