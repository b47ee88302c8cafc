
"use strict";
// The table: columns by name, values by row, and how a number is written with its unit.
const data = JSON.parse(document.getElementById("data").textContent);
/** Numbers in base 64: the upper three bytes of single precision each, the lowest first. */
function singles(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), bits = new Uint32Array(bytes.length / 3);
  for (let i = 0; i < bits.length; i++) bits[i] = (bytes[3 * i] << 8) | (bytes[3 * i + 1] << 16) | (bytes[3 * i + 2] << 24);
  const numbers = new Float32Array(bits.buffer);
  return row => Number.isNaN(numbers[row]) ? null : Number(numbers[row].toPrecision(5));
}
const DIGITS_64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/** Times of partitions as levels between the shortest and the longest: two digits each, `-` is no time; four of them a partition. */
function levels({ low, high, t }) {
  const time = level => Number((low * (high / low) ** ((level - 1) / 4094)).toPrecision(3));
  return row => {
    const found = [], text = t[row];
    for (let at = 0; at < text.length; at++) found.push(text[at] === "-" ? 0 : time(64 * DIGITS_64.indexOf(text[at]) + DIGITS_64.indexOf(text[++at])));
    return Array.from({ length: found.length / 4 }, (_, i) => found.slice(4 * i, 4 * i + 4).join("/")).join("|");
  };
}
const columns = new Map(data.columns.map(c => {
  const get = c.f ? singles(c.f) : c.t ? levels(c) : "c" in c ? () => c.c : c.d ? row => c.d[c.i[row]] : row => c.v[row];
  return [c.n, { name: c.n, doc: c.h, better: c.b || null, number: Boolean(c.num), constant: "c" in c, get }];
}));
const everyRow = Array.from({ length: data.rows }, (_, row) => row);

/** The value of a column in a row: a number, a text, or null where the row has none. */
function value(name, row) {
  const column = columns.get(name);
  const found = column ? column.get(row) : null;
  return found === "" || found === undefined ? null : found;
}
const isNumber = name => columns.get(name)?.number ?? false;
const number = (name, row) => { const v = value(name, row); return typeof v === "number" ? v : NaN; };
/** The row's label on each axis. */
const label = row => data.axes.length ? data.axes.map(axis => value(axis, row) ?? "").join(" / ") : `point ${value("point", row)}`;
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const AMOUNT = /^(\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?([kMGTPE]?)(\D*)$/;
/** What labels of an axis such as `1.2 TB/s` amount to, where all are numbers of one unit; else null. */
function amounts(labels) {
  const parts = labels.map(text => AMOUNT.exec(text));
  if (!parts.every(part => part && part[3] === parts[0][3])) return null;
  return new Map(parts.map(([text, digits, sign]) => [text, Number(digits) * (PREFIXES.find(([, s]) => s === sign)?.[0] ?? 1)]));
}
/** The distinct values of a column in their order in the table; of an axis whose points were not all solved, by size. */
function distinct(name, among = everyRow) {
  const found = [...new Set(among.map(row => String(value(name, row) ?? "")))];
  const sizes = data.proof && data.axes.includes(name) ? amounts(found) : null;
  return sizes ? found.sort((a, b) => sizes.get(a) - sizes.get(b)) : found;
}
const workloads = distinct("workload");
const isProven = row => value("status", row) === "optimal";
const hasPlan = row => !["infeasible", "failed"].includes(value("status", row));

/** A number in so many digits, without zeros at its end. */
function digits(v, n = 4) {
  if (v === 0) return "0";
  const size = Math.abs(v);
  const text = size >= 1e-4 && size < 1e7 ? Number(v.toPrecision(n)).toString() : v.toExponential(n - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  return text;
}
function prefixed(v, n = 4) {
  // What rounds up to the next prefix has it.
  const rounded = Number(v.toPrecision(n));
  const [by, sign] = PREFIXES.find(([by]) => Math.abs(rounded) >= by) ?? [1, ""];
  return [digits(rounded / by, n), sign];
}
/** A value of a column as it is read: with the unit that the column's name ends in. */
function shown(name, v, n = 4) {
  if (v === null || v === undefined || Number.isNaN(v)) return "";
  if (typeof v !== "number") return String(v);
  if (name === "utilization" || name.endsWith("_utilization") || name === "gap") return v === 0 ? "0 %" : `${digits(100 * v, Math.min(n, 3))} %`;
  if (name.endsWith("_pct")) return `${digits(v, n)} %`;
  const rate = name.includes("_per_");
  const [text, sign] = prefixed(v, n);
  if (name.endsWith("_usd") && !rate) return sign ? `$${text}${sign}` : `$${text}`;
  if (name.endsWith("_s") && !rate) {
    if (v === 0 || Math.abs(v) >= 1) return `${digits(v, n)} s`;
    const [by, unit] = [[1e-3, "ms"], [1e-6, "µs"], [0, "ns"]].find(([by]) => Math.abs(v) >= by);
    return `${digits(v / (by || 1e-9), n)} ${unit}`;
  }
  if (name.startsWith("j_per_")) return `${text} ${sign}J`;
  const unit = rate ? "" : name.endsWith("_bytes") ? "B" : name.endsWith("_w") ? "W" : name.endsWith("_j") ? "J" : name.endsWith("_kwh") ? "kWh" : "";
  if (unit) return `${text} ${sign}${unit}`;
  if (Number.isInteger(v) && Math.abs(v) < 1e6) return String(v);
  return text + sign;
}
const cell = (name, row, n) => shown(name, value(name, row), n);

/** A direction, so that of turned values the smaller is the better; 0 where neither is. */
const turn = name => ({ higher: -1, lower: 1 })[columns.get(name)?.better] ?? 0;
/**
 * The rows that no other beats: none is as good in both columns and better in one. Of equal ones all, from the best x to the best y.
 * Empty where a column does not say what is better.
 */
function front(among, x, y) {
  const [tx, ty] = [turn(x), turn(y)];
  if (!tx || !ty) return [];
  const at = among.map(row => [tx * number(x, row), ty * number(y, row), row]).filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
  at.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  const found = [];
  let last = null;
  for (const point of at) {
    if (!last || point[1] < last[1] || (point[0] === last[0] && point[1] === last[1])) { found.push(point[2]); last = point; }
  }
  return found;
}
