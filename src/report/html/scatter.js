
// The scatter chart: points of one workload or of all, a front each, brushes over the plot and over either axis.
const view = { width: 760, height: 470, left: 64, right: 28, top: 10, bottom: 48 };
const state = { x: null, y: null, group: null, logX: false, logY: false, workload: "", brush: { x: null, y: null }, hidden: new Map(), chosen: null, frontOnly: false, sort: null, page: 0 };

/** Rows of the workload that is looked at. */
const ofWorkload = () => everyRow.filter(row => state.workload === "" || String(value("workload", row) ?? "") === state.workload);
/** Whether the labels' filters leave a row. */
const labelled = row => [...state.hidden].every(([axis, off]) => !off.has(String(value(axis, row) ?? "")));
const within = (v, range) => !range || (v >= range[0] && v <= range[1]);
const brushed = row => within(number(state.x, row), state.brush.x) && within(number(state.y, row), state.brush.y);
const isBrushed = () => Boolean(state.brush.x || state.brush.y);
/** The front of each workload that is looked at, over all its rows whatever is filtered. */
function fronts() {
  const names = state.workload === "" ? workloads : [state.workload];
  const known = provenFront();
  return names.map(name => {
    const rows = everyRow.filter(row => String(value("workload", row) ?? "") === name);
    return known ? front(rows.filter(row => known.has(row)), state.x, state.y) : front(rows, state.x, state.y);
  });
}
/** The rows of the front that a search proved, where the chart shows its objectives. */
function provenFront() {
  if (!data.proof) return null;
  const aims = data.proof.objectives.map(aim => aim.split(" ").pop());
  if (!aims.includes(state.x) || !aims.includes(state.y)) return null;
  const points = new Set(data.proof.front);
  return new Set(everyRow.filter(row => points.has(value("point", row))));
}

function wantsLog(name, rows) {
  const all = rows.map(row => number(name, row)).filter(Number.isFinite);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  return low > 0 && high / low > 20;
}
/** A scale over the numbers of a column: place of a value between `from` and `to`, the value at a place, ticks. */
function scale(name, rows, log, from, to) {
  let low = Infinity, high = -Infinity;
  for (const row of rows) {
    const v = number(name, row);
    if (Number.isFinite(v) && (!log || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); }
  }
  if (low > high) return null;
  const into = log ? Math.log10 : v => v;
  const back = log ? v => 10 ** v : v => v;
  let [a, b] = [into(low), into(high)];
  if (!log && a > 0 && a < 0.5 * b) a = 0;
  const room = b > a ? 0.04 * (b - a) : log ? 0.3 : Math.abs(a) * 0.1 || 1;
  if (log || a !== 0) a -= room;
  b += room;
  const at = v => from + (into(v) - a) / (b - a) * (to - from);
  return { at, value: place => back(a + (place - from) / (to - from) * (b - a)), ticks: log ? logTicks(a, b) : linearTicks(a, b), shows: v => Number.isFinite(v) && (!log || v > 0) };
}
function linearTicks(a, b, most = 6) {
  const raw = (b - a) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw);
  const found = [];
  for (let i = Math.ceil(a / step); i * step <= b + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}
function logTicks(a, b) {
  const within = v => Math.log10(v) >= a && Math.log10(v) <= b;
  for (const factors of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]]) {
    const found = [];
    for (let e = Math.floor(a); e <= Math.ceil(b); e++) for (const f of factors) { const v = Number(`${f}e${e}`); if (within(v)) found.push(v); }
    const most = Math.ceil(found.length / 8);
    if (found.length >= 4) return factors.length === 1 ? found.filter((_, i) => i % most === 0) : found;
  }
  return linearTicks(10 ** a, 10 ** b).filter(v => v > 0);
}

/** The drawing is as wide as its place, so that its text keeps its size. */
function measure() {
  const room = byId("scatter").clientWidth;
  if (!(room > 0)) return;
  view.width = Math.max(300, Math.min(900, room));
  view.height = Math.max(300, Math.round(0.62 * view.width));
}
let drawn = null;
function drawScatter() {
  measure();
  const { width, height, left, right, top, bottom } = view;
  const rows = ofWorkload();
  const x = scale(state.x, rows, state.logX, left, width - right);
  const y = scale(state.y, rows, state.logY, height - bottom, top);
  const box = byId("scatter");
  drawn = null;
  if (!x || !y) {
    box.replaceChildren(el("p", { class: "note" }, "No point has a number in both columns that the axes can show."));
    byId("legend").replaceChildren();
    return;
  }
  const groups = state.group ? distinct(state.group, rows) : [""];
  const groupOf = new Map(groups.map((name, i) => [name, i]));
  const lines = fronts();
  const onFront = new Set(lines.flat());
  const group = row => groupOf.get(state.group ? String(value(state.group, row) ?? "") : "") ?? 0;
  const placed = rows.filter(row => x.shows(number(state.x, row)) && y.shows(number(state.y, row)));
  const places = new Map(placed.map(row => [row, [x.at(number(state.x, row)), y.at(number(state.y, row))]]));
  const radius = placed.length > 3000 ? 2.2 : placed.length > 400 ? 3 : 4;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${state.y} over ${state.x}: ${placed.length} points, ${onFront.size} on the front. The table below has the same points.` });
  for (const v of y.ticks) root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y.at(v), y2: y.at(v) }), svg("text", { x: left - 6, y: y.at(v) + 4, "text-anchor": "end" }, shown(state.y, v, 3)));
  // A tick whose number would touch the one before has a line alone.
  let free = -Infinity;
  for (const v of x.ticks) {
    root.append(svg("line", { class: "grid", x1: x.at(v), x2: x.at(v), y1: top, y2: height - bottom }));
    const half = 3.6 * shown(state.x, v, 3).length;
    if (x.at(v) - half < free || x.at(v) + half > width) continue;
    free = x.at(v) + half + 6;
    root.append(svg("text", { x: x.at(v), y: height - bottom + 16, "text-anchor": "middle" }, shown(state.x, v, 3)));
  }
  root.append(svg("path", { class: "axis", fill: "none", d: `M${left},${top}V${height - bottom}H${width - right}` }));
  root.append(svg("text", { x: (left + width - right) / 2, y: height - 10, "text-anchor": "middle" }, axisTitle(state.x, state.logX)));
  root.append(svg("text", { x: 0, y: 0, transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, axisTitle(state.y, state.logY)));
  root.append(svg("rect", { class: "hit", x: left, y: top, width: width - right - left, height: height - bottom - top }));
  root.append(svg("rect", { class: "strip", x: left, y: height - bottom, width: width - right - left, height: bottom }));
  root.append(svg("rect", { class: "strip rows", x: 0, y: top, width: left, height: height - bottom - top }));
  // What is on the front lies above what is not.
  const dots = new Map();
  for (const row of [...placed.filter(row => !onFront.has(row)), ...placed.filter(row => onFront.has(row))]) {
    const [px, py] = places.get(row), g = group(row), open = !isProven(row);
    const whisker = open ? whiskerOf(row, y) : null;
    if (whisker !== null) root.append(svg("line", { class: "whisker", stroke: colour(g), x1: px, x2: px, y1: py, y2: Math.max(top, whisker) }));
    const dot = svg("path", { class: `dot${onFront.has(row) ? " front" : ""}${open ? " open" : ""}`, d: shape(g, onFront.has(row) ? radius + 1.2 : radius), transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})`, fill: open ? null : colour(g), stroke: open ? colour(g) : null });
    dots.set(row, dot);
    root.append(dot);
  }
  for (const line of lines) {
    const at = line.map(row => places.get(row)).filter(Boolean);
    if (at.length > 1) root.append(svg("path", { class: "stairs", d: stairs(at) }));
  }
  const brush = svg("rect", { class: "brush", visibility: "hidden" });
  const ring = svg("circle", { class: "chosen", r: radius + 5, visibility: "hidden" });
  root.append(brush, ring);
  drawn = { root, x, y, places, dots, brush, ring };
  brushing(root);
  box.replaceChildren(root);
  const mark = (i, extra) => svg("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, svg("path", { d: shape(i, 4.5), fill: colour(i), ...extra }));
  const entries = state.group ? groups.map((name, i) => el("span", {}, mark(i), ` ${name === "" ? "(none)" : name}`)) : [];
  if (onFront.size) entries.push(el("span", { class: "quiet" }, "outlined, joined: front"));
  if (placed.some(row => !isProven(row))) entries.push(el("span", { class: "quiet" }, "hollow: not proven best of its search, its line reaches to the bound where the axis shows it"));
  byId("legend").replaceChildren(...entries);
  restyle();
}
const axisTitle = (name, log) => `${name}${{ higher: " (higher is better)", lower: " (lower is better)" }[columns.get(name)?.better] ?? ""}${log ? ", log" : ""}`;

/** Steps with every point of a front, from the best x on, at a corner: up to the next one the last is the best there is. */
function stairs(at) {
  let d = `M${at[0][0]},${at[0][1]}`;
  for (const [px, py] of at.slice(1)) d += `H${px}V${py}`;
  return d;
}
/** How far a point that is not proven could still rise, by its bound: of rates where a time was minimised, else nothing is said. */
function whiskerOf(row, y) {
  const [found, bound] = [number("objective", row), number("bound", row)];
  if (value("minimized", row) !== "time" || !["samples_per_s", "tokens_per_s", "flop_per_s"].includes(state.y) || !(bound > 0) || !(found > bound)) return null;
  return y.at(number(state.y, row) * found / bound);
}

/** Where a pointer is, in units of the drawing. */
function placeOf(event) {
  const box = drawn.root.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width * view.width, (event.clientY - box.top) / box.height * view.height];
}
function nearest([px, py]) {
  let best = null, least = 14 ** 2;
  for (const [row, [x, y]] of drawn.places) {
    if (!labelled(row)) continue;
    const far = (x - px) ** 2 + (y - py) ** 2;
    if (far < least) [best, least] = [row, far];
  }
  return best;
}
function brushing(root) {
  let start = null;
  const span = (a, b, axis) => [axis.value(a), axis.value(b)].sort((p, q) => p - q);
  root.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    const on = event.target.classList;
    start = { at: placeOf(event), x: !on.contains("rows"), y: !on.contains("strip") || on.contains("rows"), moved: false };
    if (event.isTrusted) root.setPointerCapture(event.pointerId);
  });
  root.addEventListener("pointermove", event => {
    const at = placeOf(event);
    if (!start) {
      const row = nearest(at);
      if (row === null) hideTip();
      else showTip(event, [label(row), `${state.x} ${cell(state.x, row)}`, `${state.y} ${cell(state.y, row)}`, `${value("status", row)}${value("bottleneck", row) ? `, limited by ${value("bottleneck", row)}` : ""}`]);
      return;
    }
    start.moved ||= Math.hypot(at[0] - start.at[0], at[1] - start.at[1]) > 5;
    if (!start.moved) return;
    state.brush = { x: start.x ? span(start.at[0], at[0], drawn.x) : null, y: start.y ? span(start.at[1], at[1], drawn.y) : null };
    restyle();
  });
  root.addEventListener("pointerup", event => {
    if (!start) return;
    const { moved } = start;
    start = null;
    if (moved) { filtered(); return; }
    const row = nearest(placeOf(event));
    if (row !== null) choose(row);
    else if (isBrushed()) clearBrush();
  });
  root.addEventListener("pointercancel", () => { start = null; });
  root.addEventListener("pointerleave", hideTip);
}
function clearBrush() {
  state.brush = { x: null, y: null };
  filtered();
}

/** Which points are pale, where the brush and the ring are. */
function restyle() {
  if (!drawn) return;
  const { left, right, top, bottom, width, height } = view;
  for (const [row, dot] of drawn.dots) dot.classList.toggle("out", !(labelled(row) && brushed(row)));
  const between = (range, axis, low, high) => range ? range.map(v => Math.max(low, Math.min(high, axis.at(v)))).sort((a, b) => a - b) : [low, high];
  const [x0, x1] = between(state.brush.x, drawn.x, left, width - right), [y0, y1] = between(state.brush.y, drawn.y, top, height - bottom);
  fill(drawn.brush, { x: x0, y: y0, width: x1 - x0, height: y1 - y0, visibility: isBrushed() ? "visible" : "hidden" }, []);
  const at = drawn.places.get(state.chosen);
  fill(drawn.ring, { cx: at?.[0] ?? 0, cy: at?.[1] ?? 0, visibility: at ? "visible" : "hidden" }, []);
}
