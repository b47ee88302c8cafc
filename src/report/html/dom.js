
// Elements: made by name, filled with text alone, so that no name of a user is read as HTML.
const byId = id => document.getElementById(id);
function fill(node, attributes, children) {
  for (const [key, v] of Object.entries(attributes ?? {})) {
    if (v === null || v === undefined || v === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), v);
    else node.setAttribute(key, v === true ? "" : String(v));
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
function choice(text, options, chosen, change) {
  const select = el("select", { onchange: () => change(select.value) }, options.map(([v, name]) => el("option", { value: v, selected: v === chosen }, name)));
  return el("label", {}, text, select);
}
function tick(text, checked, change) {
  const box = el("input", { type: "checkbox", checked, onchange: () => change(box.checked) });
  return el("label", {}, box, text);
}
const facts = pairs => {
  const held = pairs.filter(([, v]) => v !== null && v !== undefined && v !== "");
  return held.length ? el("dl", {}, held.map(([name, v]) => [el("dt", {}, name), el("dd", {}, v)])) : null;
};
function plainTable(head, body, numeric = []) {
  const kind = i => numeric.includes(i) ? { class: "number" } : {};
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", ...kind(i) }, h)))),
    el("tbody", {}, body.map(row => el("tr", {}, row.map((c, i) => el("td", kind(i), c)))))));
}
const pointLink = (row, text = label(row)) => el("button", { type: "button", class: "link", onclick: () => choose(row, true) }, text);

// Groups have a colour and a shape each; the colours come round again with other shapes.
const SHAPES = [
  r => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  r => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  r => `M0,${-1.25 * r}L${1.15 * r},${0.85 * r}H${-1.15 * r}z`,
  r => `M0,${-1.35 * r}L${1.35 * r},0L0,${1.35 * r}L${-1.35 * r},0z`,
  r => `M0,${1.25 * r}L${1.15 * r},${-0.85 * r}H${-1.15 * r}z`,
];
const colour = i => `var(--c${i % 7})`;
const shape = (i, r) => SHAPES[(i + Math.floor(i / 7)) % SHAPES.length](r);

function showTip(event, lines) {
  const tip = byId("tip");
  tip.replaceChildren(...lines.map((line, i) => el("div", i ? {} : { style: "font-weight:600" }, line)));
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(4, Math.min(event.pageX + 14, room))}px`;
  tip.style.top = `${event.pageY + 14}px`;
}
const hideTip = () => { byId("tip").hidden = true; };

const VIRIDIS = [[0x44, 0x01, 0x54], [0x48, 0x28, 0x78], [0x3e, 0x4a, 0x89], [0x31, 0x68, 0x8e], [0x26, 0x82, 0x8e], [0x1f, 0x9e, 0x89], [0x35, 0xb7, 0x79], [0x6d, 0xcd, 0x59], [0xb4, 0xde, 0x2c], [0xfd, 0xe7, 0x25]];
/** The colour of a share between 0 and 1, and the colour of text on it. */
function ramp(share) {
  const at = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1);
  const [low, part] = [Math.min(Math.floor(at), VIRIDIS.length - 2), at - Math.min(Math.floor(at), VIRIDIS.length - 2)];
  const rgb = VIRIDIS[low].map((c, i) => Math.round(c + part * (VIRIDIS[low + 1][i] - c)));
  const light = (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]) / 255;
  return [`rgb(${rgb.join(",")})`, light > 0.5 ? "#000" : "#fff"];
}
