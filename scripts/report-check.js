// What scripts/report-check.sh adds to a copy of a report: it uses the page as a reader does, and writes what it found into the page.
// `faults` is made before the scripts of the page run, so that their errors are in it.
(() => {
  const check = (holds, what) => { if (!holds) faults.push(what); };
  const table = JSON.parse(document.getElementById("data").textContent);
  const column = name => { const c = table.columns.find(c => c.n === name); if (c?.f) return columns.get(name).get; return row => !c ? null : "c" in c ? c.c : c.d ? c.d[c.i[row]] : c.v[row]; };
  const all = selector => [...document.querySelectorAll(selector)];
  const text = selector => document.querySelector(selector)?.textContent ?? "";
  const rows = Array.from({ length: table.rows }, (_, row) => row);
  const ours = rows.filter(row => state.workload === "" || String(column("workload")(row)) === state.workload);
  const [x, y, point, status] = [column(state.x), column(state.y), column("point"), column("status")];
  const seen = ours.filter(row => Number.isFinite(x(row)) && x(row) !== null && Number.isFinite(y(row)) && y(row) !== null && (!state.logX || x(row) > 0) && (!state.logY || y(row) > 0));
  const pointer = (type, target, clientX, clientY) => target.dispatchEvent(new PointerEvent(type, { bubbles: true, clientX, clientY, button: 0, pointerId: 1 }));
  const counted = () => Number(/^\d+/.exec(text("#count"))?.[0]);
  try {
    check(performance.getEntriesByType("resource").length === 0, "something was fetched");
    check(all("script").length === 4 && all("img,iframe,object,link").length === 0, "a text became an element");
    check(text("h1") === (table.title || "Results"), "the title is not the study's");
    check(all("#scatter .dot").length === seen.length, `${all("#scatter .dot").length} points are drawn, ${seen.length} have both numbers`);
    check(counted() === ours.length, `the table counts ${counted()} points of ${ours.length}`);

    // The front: no other point of the workload is as good in both and better in one.
    const sign = name => table.columns.find(c => c.n === name).b === "higher" ? -1 : 1;
    const known = table.proof ? new Set(table.proof.front) : null;
    const beats = (a, b) => { const d = [sign(state.x) * (x(a) - x(b)), sign(state.y) * (y(a) - y(b))]; return Math.max(...d) <= 0 && Math.min(...d) < 0; };
    const few = seen.length <= 2000 ? seen : [];
    const best = state.workload !== "" || new Set(rows.map(column("workload"))).size === 1
      ? few.filter(row => (!known || known.has(point(row))) && !few.some(other => (!known || known.has(point(other))) && beats(other, row))) : [];
    if (best.length) check(all("#scatter .dot.front").length === best.length, `${all("#scatter .dot.front").length} points on the front, not ${best.length}`);

    // A click on a point shows its plan.
    check(text("#point").includes("No point chosen"), "a point is chosen before any was clicked");
    const svg = document.querySelector("#scatter svg");
    for (const row of seen.filter((_, i) => i % Math.ceil(seen.length / 5) === 0)) {
      const dot = drawn.dots.get(row).getBoundingClientRect();
      const at = [dot.left + dot.width / 2, dot.top + dot.height / 2];
      pointer("pointerdown", svg, ...at);
      pointer("pointerup", svg, ...at);
      // Of points that lie on each other either may be meant.
      const chosen = state.chosen;
      check(chosen !== null && Math.hypot(...["x", "y"].map(key => drawn[key].at(column(state[key])(chosen)) - drawn[key].at(column(state[key])(row)))) < 1, `a click on point ${point(row)} chose ${chosen === null ? "none" : point(chosen)}`);
      if (chosen === null) continue;
      check(location.hash === `#point=${point(chosen)}`, "the address does not name the point");
      const said = all("#point h3").map(h => h.textContent);
      check(said.includes("Plan") && said.includes("Proof"), `no plan or proof of point ${point(chosen)}: ${said}`);
      const kernels = String(column("fusion_mapping")(chosen) ?? "");
      if (kernels) {
        check(said.includes("What limits a layer pass") && all("#point .bar").length > 0, "no bottleneck of the point");
        check(kernels.split("|").every(part => text("#point").includes(part.replaceAll("+", ", "))), "kernels of a partition are not shown");
      }
      check(text("#point h3") === table.axes.map(axis => column(axis)(chosen) ?? "").join(" / ") || !table.axes.length, "the panel is of another point");
    }

    // Brushes: over the horizontal axis, over the plot, as numbers; cleared by a button.
    const strip = document.querySelector("#scatter .strip").getBoundingClientRect();
    const target = document.querySelector("#scatter .strip");
    pointer("pointerdown", target, strip.left + 2, strip.top + 5);
    pointer("pointermove", target, strip.left + strip.width / 2, strip.top + 5);
    pointer("pointerup", target, strip.left + strip.width / 2, strip.top + 5);
    const range = state.brush.x;
    check(range !== null && state.brush.y === null, "no brush over the horizontal axis alone");
    const held = range ? ours.filter(row => x(row) !== null && x(row) >= range[0] && x(row) <= range[1]).length : 0;
    check(counted() === held, `the brush holds ${held} points, the table has ${counted()}`);
    check(all("#scatter .dot.out").length === seen.filter(row => !(range && x(row) >= range[0] && x(row) <= range[1])).length, "what the brush leaves out is not pale");
    document.getElementById("clear").click();
    check(counted() === ours.length && all("#scatter .dot.out").length === 0, "the brush is not cleared");
    const box = document.querySelector("#ranges input");
    const middle = [...seen].sort((a, b) => x(a) - x(b))[Math.floor(seen.length / 2)];
    box.value = String(x(middle));
    box.dispatchEvent(new Event("change"));
    check(counted() === ours.filter(row => x(row) !== null && x(row) >= x(middle)).length, "a number in the range box does not choose rows");
    document.getElementById("clear").click();

    // Labels, the front alone, order, rows, cells.
    const chip = document.querySelector("#filters .chip");
    if (chip) {
      const axis = chip.parentElement.querySelector("legend").textContent;
      chip.click();
      check(counted() === ours.filter(row => String(column(axis)(row) ?? "") !== chip.textContent).length, "a label that is off keeps its rows");
      chip.click();
    }
    document.querySelector("#table-controls input").click();
    check(counted() === all("#scatter .dot.front").length, "the front alone is not the front");
    document.querySelector("#table-controls input").click();
    const head = all("#rows th button").find(b => b.textContent === state.y);
    head.click();
    const first = Number(document.querySelector("#rows tbody tr").dataset.row);
    const most = seen.reduce((a, row) => (sign(state.y) * y(row) < sign(state.y) * y(a) ? row : a), seen[0]);
    check(y(first) === y(most), `ordered by ${state.y}, the first row is not the best`);
    document.querySelectorAll("#rows tbody tr")[0].click();
    check(state.chosen === first && document.querySelector("#rows tr.chosen") !== null, "a click on a row does not choose it");
    const cells = all("#heat td button");
    check(document.getElementById("heat-section").hidden || cells.length > 0 || text("#heat-says").includes("more than"), "no heat map");
    if (cells.length) {
      cells[cells.length - 1].click();
      check(state.chosen === Number(cells[cells.length - 1].dataset.row), "a click on a cell does not choose its point");
    }

    // What has no plan is shown by reason.
    const without = rows.filter(row => ["infeasible", "failed"].includes(status(row)));
    check(document.getElementById("without-section").hidden === (without.length === 0), "points without a plan are not told, or there are none");
    const sum = all("#without tbody tr").reduce((n, line) => n + Number(line.firstChild.textContent), 0);
    check(sum === without.length, `${sum} points without a plan by reason, not ${without.length}`);
    if (without.length) {
      document.querySelector("#without button.link").click();
      check(all("#point h3").some(h => h.textContent === "No plan") && text("#point").includes(column("reason")(state.chosen)), "no reason of a point without a plan");
    }
    const dark = getComputedStyle(document.body).backgroundColor;
    document.getElementById("theme").click();
    check(getComputedStyle(document.body).backgroundColor !== dark, "light and dark are the same");
    check(all("select,input,button").every(e => (e.textContent || e.ariaLabel || e.labels?.length || e.title)), "a control without a name");
    check(!document.body.innerText.includes("[object ") && !/\b(NaN|undefined|Infinity)\b/.test(document.body.innerText), "a value is printed as NaN, undefined or an object");
    check(document.documentElement.scrollWidth <= document.documentElement.clientWidth, `the page is ${document.documentElement.scrollWidth} wide in a window of ${document.documentElement.clientWidth}`);
  } catch (error) {
    faults.push(`the check ended: ${error.stack}`);
  }
  document.body.append(el("pre", { id: "checked" }, faults.length ? `FAULTS\n${faults.join("\n")}\nEND` : `SOUND ${table.rows} rows END`));
})();
