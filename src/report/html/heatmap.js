
// Heat maps: two choices of axes against each other; a cell stands for the best of its points, and is a button that shows it.
const heat = { rows: "", cols: "", value: "", panels: "" };
const MOST_CELLS = 6000;
const several = text => text === "" ? [] : text.split("+");

function heatStart() {
  const asked = String(data.heatmap ?? "").split(";");
  const known = text => several(text ?? "").every(axis => data.axes.includes(axis));
  if (asked.length >= 3 && asked[0] && known(asked[0]) && known(asked[1])) {
    [heat.rows, heat.cols] = asked;
    heat.value = several(asked[2]).find(isNumber) ?? "";
    if (asked[3] && known(asked[3])) heat.panels = asked[3];
  } else {
    // The first half of the axes against the other, those without a choice left out.
    const axes = data.axes.filter(axis => distinct(axis).length > 1);
    const half = Math.ceil(axes.length / 2);
    [heat.rows, heat.cols] = [axes.slice(0, half).join("+"), axes.slice(half).join("+")];
    if (distinctOf(heat.rows).length * distinctOf(heat.cols).length > 400) [heat.rows, heat.cols] = [axes[0] ?? "", axes[1] ?? ""];
  }
  if (!heat.value) heat.value = columns.has("utilization") && !columns.get("utilization").constant ? "utilization" : state.y;
}
const combined = (axes, row) => several(axes).map(axis => String(value(axis, row) ?? "")).join(" / ");
function distinctOf(axes, among = everyRow) {
  // In the order of the study: the labels' first places on each axis, the outer axis first.
  const order = several(axes).map(axis => new Map(distinct(axis).map((name, i) => [name, i])));
  const found = new Map();
  for (const row of among) {
    const name = combined(axes, row);
    if (!found.has(name)) found.set(name, several(axes).map((axis, i) => order[i].get(String(value(axis, row) ?? ""))));
  }
  const compare = (a, b) => { for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - b[i]; return 0; };
  return [...found].sort((a, b) => compare(a[1], b[1])).map(([name]) => name);
}

function heatControls() {
  const axes = data.axes.map(axis => [axis, axis]);
  const option = text => text.includes("+") ? [[text, several(text).join(" / ")]] : [];
  const set = key => v => { heat[key] = v; drawHeat(); };
  const values = [...columns.values()].filter(c => c.number && !c.constant && c.name !== "point").map(c => [c.name, c.name]);
  byId("heat-controls").replaceChildren(
    choice("rows", [...option(heat.rows), ...axes, ["", "(none)"]], heat.rows, set("rows")),
    choice("columns", [...option(heat.cols), ...axes, ["", "(none)"]], heat.cols, set("cols")),
    choice("value", values, heat.value, set("value")),
    choice("one map for each", [["", "(none)"], ...option(heat.panels), ...axes], heat.panels, set("panels")),
  );
}

function drawHeat() {
  const rows = ofWorkload();
  const used = [heat.rows, heat.cols, heat.panels].flatMap(several);
  const over = data.axes.filter(axis => !used.includes(axis) && distinct(axis, rows).length > 1);
  const best = turn(state.y) ? state.y : null;
  const apart = state.workload === "" && workloads.length > 1;
  const maps = new Map();
  for (const row of rows) {
    const name = [apart ? String(value("workload", row) ?? "") : "", combined(heat.panels, row)].filter(Boolean).join(", ");
    if (!maps.has(name)) maps.set(name, []);
    maps.get(name).push(row);
  }
  const [names, heads] = [distinctOf(heat.rows, rows), distinctOf(heat.cols, rows)];
  const box = byId("heat");
  if (names.length * heads.length * maps.size > MOST_CELLS) {
    byId("heat-says").replaceChildren(`${names.length * heads.length * maps.size} cells: more than ${MOST_CELLS} are not drawn; choose other axes.`);
    box.replaceChildren();
    return;
  }
  const cells = new Map();
  for (const [name, members] of maps) {
    const grid = new Map();
    for (const row of members) {
      const key = `${combined(heat.rows, row)}\n${combined(heat.cols, row)}`;
      const before = grid.get(key);
      if (before === undefined || isBetter(row, before, best)) grid.set(key, row);
    }
    cells.set(name, grid);
  }
  const shownRows = [...cells.values()].flatMap(grid => [...grid.values()]);
  const all = shownRows.map(row => number(heat.value, row)).filter(Number.isFinite);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const log = heat.value !== "utilization" && low > 0 && high / low > 20;
  const share = v => high === low ? 0.5 : log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low);
  const stops = Array.from({ length: 10 }, (_, i) => ramp(i / 9)[0]).join(",");
  byId("heat-says").replaceChildren(
    over.length ? `Each cell is its point that is best in ${best ?? "the order of the table"} over ${over.join(", ")}. ` : "",
    all.length ? el("span", { class: "ramp" }, shown(heat.value, low, 3), el("i", { style: `background:linear-gradient(to right,${stops})` }), `${shown(heat.value, high, 3)}${log ? " (log)" : ""}`) : "No cell has a value. ",
    shownRows.some(row => !hasPlan(row)) ? el("span", {}, " ", el("span", { class: "swatch none" }), "no plan: what is short") : "",
  );
  box.replaceChildren(...[...cells].map(([name, grid]) => el("div", { class: "scroll" }, el("table", { class: "heat" }, el("caption", {}, [name, heat.value].filter(Boolean).join(": ")),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, several(heat.rows).join(" / ")), heads.map(h => el("th", { scope: "col" }, h)))),
    el("tbody", {}, names.map(n => el("tr", {}, el("th", { scope: "row" }, n), heads.map(h => el("td", {}, heatCell(grid.get(`${n}\n${h}`), share))))))))));
  heatChosen();
}
/** Whether a row is better than another in a column; a plan is better than none. */
function isBetter(row, other, best) {
  if (hasPlan(row) !== hasPlan(other)) return hasPlan(row);
  return Boolean(best) && turn(best) * number(best, row) < turn(best) * number(best, other);
}
function heatCell(row, share) {
  if (row === undefined) return "";
  const v = number(heat.value, row);
  const button = (attributes, text) => el("button", { type: "button", "data-row": row, title: label(row), onclick: () => choose(row, true), ...attributes }, text);
  if (!Number.isFinite(v)) return button({ class: "none" }, hasPlan(row) ? "–" : value("short_of", row) ?? value("status", row));
  const [back, text] = ramp(share(v));
  return button({ style: `background:${back};color:${text}` }, `${shown(heat.value, v, 3)}${isProven(row) ? "" : " *"}`);
}
function heatChosen() {
  for (const button of byId("heat").querySelectorAll("button[data-row]")) button.classList.toggle("chosen", Number(button.dataset.row) === state.chosen);
}
