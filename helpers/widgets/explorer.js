// The sliders of the workbook, live in a notebook (anywidget) or alone on a page.
//
// Python sends one JSON object, `data`, and this module draws it. There are three kinds: "kernels" (bars and a map),
// "grid" (blocks of threads over a matrix), and "ptx" (source, PTX and SASS). Every word and unit comes from Python.
// A position that `data` lacks is requested from the Python kernel if there is one, and added to `data` when it arrives.

// ---------------------------------------------------------------------------------------------------- rules
// Pure functions, which tests/widgets/explorer.test.mjs checks in Node.

/** The key of a kernel's row: its number, and its positions along the axes that it depends on. */
export function rowKey(data, kernel, at) {
  const axes = data.kernels[kernel].mapped ? at.map((_, i) => i) : data.sizes;
  return `${kernel}|${axes.map((i) => at[i]).join(",")}`;
}

/** A kernel's row at a position on one GPU, or undefined. */
export function rowAt(data, gpu, kernel, at) {
  return data.gpus[gpu].rows[rowKey(data, kernel, at)];
}

/** The dashed line of a GPU at a position, with its text; null if it is not known for the position's dtype. */
export function ceilingAt(data, gpu, at) {
  return data.gpus[gpu].ceilings[at[data.sizes[1]]] ?? null;
}

/** What colors a cell of the map, or null: the value of its bar, or another one for a kernel that has no bar. */
export function shadeOf(row) {
  return row?.shade ?? row?.v ?? null;
}

/** The kernels whose rows are missing at a position, on the GPU that can measure (the first). */
export function missing(data, shown, at) {
  return shown.filter((kernel) => rowAt(data, 0, kernel, at) === undefined);
}

/** The map of one kernel: rows from top to bottom, each with its cells' positions and table rows. */
export function cellsOf(data, gpu, kernel, at) {
  const [x, y] = data.map;
  const place = (i, j) => at.map((v, axis) => (axis === x ? i : axis === y ? j : v));
  const ys = data.axes[y].values.map((_, j) => j).reverse();
  return ys.map((j) => data.axes[x].values.map((_, i) => {
    const position = place(i, j);
    return { at: position, row: rowAt(data, gpu, kernel, position) };
  }));
}

/** A color between those of a scale; `part` is 0 to 1. */
export function shade(scale, part) {
  const last = scale.length - 1;
  const place = Math.min(Math.max(part, 0), 1) * last;
  const i = Math.min(Math.floor(place), last - 1);
  const [from, to] = [scale[i], scale[i + 1]].map((hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)));
  const mixed = from.map((v, k) => Math.round(v + (to[k] - v) * (place - i)));
  return `#${mixed.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever can be read on a color (by WCAG's relative luminance). */
export function ink(hex) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16) / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** Which block, thread, warp and lane has the element (row, col); threads are numbered along x first. */
export function place(row, col, blockX, blockY) {
  const x = col % blockX, y = row % blockY, thread = y * blockX + x;
  return { block: [Math.floor(col / blockX), Math.floor(row / blockY)], thread: [x, y], warp: thread >> 5, lane: thread & 31 };
}

/** The color number of an element: 7 for warp 0 of block (0, 0), else one that its neighbors do not have. */
export function colorOf(at) {
  const [bx, by] = at.block;
  return bx === 0 && by === 0 && at.warp === 0 ? 7 : (at.warp + 2 * bx + 3 * by) % 7;
}

/** A line of PTX or SASS without what every compilation numbers anew: registers, addresses, labels. */
export function essence(kind, text) {
  let line = kind === "ptx"
    ? text.replace(/%(\w+?)\d+/g, "%$1")
    : text.replace(/\b(U?[RP])\d+/g, "$1").replace(/^\s*[0-9a-f]{3,}\s+/, "").replaceAll(".reuse", "");
  line = line.replace(/(\$L__BB|\.L_x_)\w+/g, "label");
  return line.trim().split(/\s+/).join(" ");
}

const MOST_PAIRS = 250_000;

/** Aligns two lists of texts: pairs [i, j], where i or j is null for a line that only one side has. */
export function align(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const n = a.length - head - tail, m = b.length - head - tail;
  const pairs = Array.from({ length: head }, (_, i) => [i, i]);
  if (n * m > MOST_PAIRS) {  // too long to align: pair equal lines wherever they are
    const spare = new Map();
    for (let i = 0; i < n; i++) spare.set(a[head + i], [...(spare.get(a[head + i]) ?? []), head + i]);
    const used = new Set();
    for (let j = 0; j < m; j++) {
      const i = spare.get(b[head + j])?.shift();
      if (i !== undefined) used.add(i);
      pairs.push([i ?? null, head + j]);
    }
    for (let i = head; i < head + n; i++) if (!used.has(i)) pairs.push([i, null]);
  } else {  // the longest common subsequence
    const long = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
    for (let i = n - 1; i >= 0; i--) {
      for (let j = m - 1; j >= 0; j--) {
        long[i][j] = a[head + i] === b[head + j] ? long[i + 1][j + 1] + 1 : Math.max(long[i + 1][j], long[i][j + 1]);
      }
    }
    let i = 0, j = 0;
    while (i < n || j < m) {
      if (i < n && j < m && a[head + i] === b[head + j]) pairs.push([head + i++, head + j++]);
      else if (j === m || (i < n && long[i + 1][j] >= long[i][j + 1])) pairs.push([head + i++, null]);
      else pairs.push([null, head + j++]);
    }
  }
  for (let k = tail; k > 0; k--) pairs.push([a.length - k, b.length - k]);
  return pairs;
}

/** Which lines (by index) are new since another version of a text, and how many of that one are gone. */
export function news(kind, before, now) {
  if (!before) return { added: new Set(), gone: 0 };
  const pairs = align(before.map((line) => essence(kind, line[2])), now.map((line) => essence(kind, line[2])));
  const added = new Set(pairs.filter(([i]) => i === null).map(([, j]) => j));
  return { added, gone: pairs.filter(([, j]) => j === null).length };
}

/** Rows of a side-by-side diff: [left, right, sign], where the sign is "=", "~", "-" or "+". */
export function sideBySide(left, right) {
  const rows = [];
  let gone = [], come = [];
  const flush = () => {
    for (let k = 0; k < Math.max(gone.length, come.length); k++) {
      const i = gone[k] ?? null, j = come[k] ?? null;
      rows.push([i, j, i === null ? "+" : j === null ? "-" : "~"]);
    }
    gone = [];
    come = [];
  };
  for (const [i, j] of align(left, right)) {
    if (i !== null && j !== null) {
      flush();
      rows.push([i, j, "="]);
    } else if (j === null) gone.push(i);
    else come.push(j);
  }
  flush();
  return rows;
}

/** The parts of a line of code before, in and after its opcode. */
export function opcodeOf(kind, text) {
  const patterns = { ptx: /^(\s*(?:@!?\S+\s+)?)([a-z][\w.:]*)(?=\s|;)/, sass: /^(\s*[0-9a-f]{3,}\s+(?:@!?\w+\s+)?)([A-Z][\w.]*)/ };
  const match = patterns[kind]?.exec(text);
  return match ? [match[1], match[2], text.slice(match[0].length)] : [text, "", ""];
}

// ---------------------------------------------------------------------------------------------------- elements

function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const KEEP_KEYS = { "data-lm-suppress-shortcuts": "true" };  // JupyterLab would move between cells
// A name that no other widget of the page has. Each widget loads this module again, so counting isn't enough.
const unique = () => `kx-${Math.random().toString(36).slice(2)}`;

const STYLE = `
.kx { container-type: inline-size; font: 13px/1.5 system-ui, sans-serif; text-align: left; min-width: 0;
  color: var(--jp-ui-font-color1, var(--pst-color-text-base, var(--colab-primary-text-color, inherit)));
  --kx-back: var(--jp-layout-color0, var(--pst-color-background, var(--colab-primary-surface-color, var(--back, Canvas))));
  --kx-line: rgba(128, 128, 128, .5); --kx-alert: #D55E00; --kx-warning: color-mix(in srgb, #D55E00 65%, currentColor); }
.kx *, .kx *::before { box-sizing: border-box; }
:is(.jp-OutputArea-output, .jp-OutputArea-child, .jp-OutputArea):has(.kx) { overflow: visible; }
.kx-controls { position: sticky; top: var(--kx-top, 0px); z-index: 3; background: var(--kx-back); padding: 4px 0 6px; }
.kx-sliders { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 2px 24px; }
.kx-slider { display: grid; grid-template-columns: 8.5em minmax(60px, 1fr) 4.5em; gap: 10px; align-items: center; }
.kx-slider span { overflow-wrap: anywhere; }
.kx-slider output { font-variant-numeric: tabular-nums; font-weight: 600; }
.kx-slider input { width: 100%; margin: 0; min-height: 24px; }
.kx-row { display: flex; flex-wrap: wrap; gap: 4px 18px; align-items: center; margin-top: 4px; }
.kx-group { display: flex; flex-wrap: wrap; gap: 2px 10px; align-items: center; border: 0; margin: 0; padding: 0; min-width: 0; }
.kx-group legend { float: left; width: auto; margin: 0; padding: 0 8px 0 0; font: inherit; }
.kx-group legend + * { clear: none; }
.kx label { display: inline-flex; gap: 5px; align-items: center; font: inherit; margin: 0; cursor: pointer; min-height: 24px; }
.kx label.kx-slider { display: grid; cursor: default; }
.kx input[type=radio], .kx input[type=checkbox] { margin: 0; width: 15px; height: 15px; }
.kx button { font: inherit; color: inherit; background: transparent; border: 1px solid var(--kx-line); border-radius: 4px;
  padding: 2px 10px; min-height: 26px; cursor: pointer; }
.kx button:hover { background: rgba(128, 128, 128, .15); }
.kx button:disabled { opacity: .6; cursor: default; }
.kx-dot { width: 11px; height: 11px; border-radius: 3px; flex: none; }
@media (max-height: 560px) { .kx-controls { position: static; } }
.kx-title { font-weight: 600; font-size: 15px; margin: 8px 0 0; }
.kx-note { opacity: .85; margin: 0 0 6px; }
.kx-figures { display: grid; grid-template-columns: minmax(0, 1fr); gap: 14px 28px; align-items: start; }
@container (min-width: 720px) { .kx-figures { grid-template-columns: minmax(0, 46fr) minmax(0, 54fr); } }
.kx-figure { min-width: 0; }
.kx-caption { font-weight: 600; margin: 0 0 4px; }
.kx-bar { margin: 0 0 9px; }
.kx-label { display: flex; flex-wrap: wrap; gap: 0 8px; }
.kx-label span { font-variant-numeric: tabular-nums; }
.kx-wrong { color: var(--kx-warning); font-weight: 600; }
.kx-track { position: relative; height: 17px; border-bottom: 1px solid var(--kx-line); margin-bottom: 2px; }
.kx-bar > .kx-track + .kx-label { margin-top: 3px; }
.kx-track i { position: absolute; inset: 0 auto 0 0; border-radius: 0 3px 3px 0; }
.kx-second i { opacity: .55; }
.kx-track u { position: absolute; top: 50%; height: 9px; margin-top: -4.5px; border: solid currentColor; border-width: 0 1.5px; min-width: 3px; }
.kx-track u::before { content: ""; position: absolute; top: 4px; left: 0; right: 0; border-top: 1.5px solid currentColor; }
.kx-track s { position: absolute; top: -2px; bottom: -3px; border-left: 2px dashed currentColor; }
.kx-scale { display: flex; flex-wrap: wrap; gap: 0 16px; opacity: .85; }
.kx-scale b { display: inline-block; width: 0; height: 12px; border-left: 2px dashed currentColor; margin-right: 6px; vertical-align: -2px; }
.kx-map { display: grid; grid-template-columns: auto repeat(var(--kx-columns), minmax(0, 1fr)); gap: 2px; font-size: 11px; line-height: 1.2; text-align: center; font-variant-numeric: tabular-nums; touch-action: manipulation; }
.kx-cell { min-width: 0; height: 30px; display: flex; align-items: center; justify-content: center; overflow: hidden; cursor: pointer; border-radius: 2px; }
.kx-none { background: rgba(128, 128, 128, .18); }
.kx-refused { background: #C8C8C8; color: #222222; }
.kx-here { outline: 3px solid var(--kx-alert); outline-offset: -1px; z-index: 1; }
.kx-tick { align-self: center; justify-self: end; padding-right: 4px; white-space: nowrap; }
.kx-tick.kx-below { justify-self: center; padding: 2px 0 0; }
.kx-axis { grid-column: 2 / -1; padding-top: 2px; }
@container (max-width: 520px) { .kx-dense .kx-cell span { display: none; } .kx-map { font-size: 10px; gap: 1px; } }
.kx-lines > div { margin: 3px 0; overflow-wrap: anywhere; }
.kx table { border-collapse: collapse; font: inherit; margin: 4px 0; color: inherit; }
.kx tr, .kx tbody tr:nth-child(odd) { background: none; }
.kx th, .kx td { text-align: left; font-weight: 400; padding: 1px 16px 1px 0; border: 0; vertical-align: top; background: none; color: inherit; }
.kx thead th { font-weight: 600; white-space: nowrap; }
.kx-scroll { overflow-x: auto; }
.kx-was { opacity: .8; }
.kx-alert { color: var(--kx-warning); font-weight: 600; }
.kx-tip { position: absolute; z-index: 9; max-width: 320px; padding: 5px 9px; border-radius: 4px; background: #222222; color: #ffffff;
  font-size: 12px; pointer-events: none; white-space: pre-line; }
.kx-grid svg { display: block; width: 100%; height: auto; }
.kx-brackets { display: grid; grid-template-columns: repeat(var(--kx-columns), 1fr); gap: 0 4px; font-size: 12px; }
.kx-brackets span { border-bottom: 2px solid currentColor; text-align: center; margin-bottom: 3px; }
.kx-panes { display: grid; gap: 8px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); margin: 6px 0; }
.kx-pane { border: 1px solid var(--kx-line); border-radius: 4px; overflow: hidden; min-width: 0; }
.kx-wide { grid-column: 1 / -1; }
.kx-head { font-weight: 600; padding: 3px 8px; border-bottom: 1px solid var(--kx-line); }
.kx-legend { padding: 2px 8px; border-bottom: 1px solid var(--kx-line); font-size: 12px; }
.kx-text { overflow: auto; max-height: 28em; font: 12px/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
.kx-source .kx-text { max-height: 16em; }
.kx-fades { --kx-end: calc(100% - var(--kx-bar)); mask-image: linear-gradient(to right, #000 calc(var(--kx-end) - 40px), transparent var(--kx-end), #000 var(--kx-end)); }
@media print { .kx-fades { mask-image: none; } }
.kx-code { display: block; padding: 0 6px; border-left: 4px solid transparent; width: max-content; min-width: 100%; }
.kx label.kx-code { display: block; min-height: 0; font: inherit; }
.kx .kx-code input { margin: 0 6px 0 0; vertical-align: -2px; }
.kx-number { opacity: .75; }
.kx-new > .kx-sign { color: var(--kx-warning); font-weight: 700; }
.kx-sides { display: grid; grid-template-columns: max-content max-content; gap: 0 20px; padding: 0 6px; }
.kx-sides > .kx-same { grid-column: 1 / -1; opacity: .75; }
.kx-bytes { display: inline-block; min-width: 4ch; text-align: right; margin-right: 1ch; padding-right: .4ch; border-right: 3px solid transparent; }
.kx-facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 250px), 1fr)); gap: 0 28px; margin: 6px 0; }
.kx-facts div { display: flex; justify-content: space-between; gap: 10px; border-bottom: 1px solid rgba(128, 128, 128, .2); }
`;

let edges = null;
/** A box that scrolls; its right edge fades while more follows behind it. */
function scroller(props, ...children) {
  const fade = ({ target }) => {
    target.style.setProperty("--kx-bar", `${target.offsetWidth - target.clientWidth}px`);
    target.classList.toggle("kx-fades", target.scrollLeft + target.clientWidth < target.scrollWidth - 2);
  };
  edges ??= new ResizeObserver((changes) => changes.forEach(fade));
  const box = h("div", { tabindex: 0, onscroll: fade, ...props }, ...children);
  edges.observe(box);
  return box;
}

/** Puts the style sheet into the document or shadow root that an element is in. */
function addStyle(element) {
  const root = element.getRootNode();
  const target = root instanceof ShadowRoot ? root : document.head;
  if (!target.querySelector("style[data-kx]")) target.append(h("style", { "data-kx": "" }, STYLE));
}

function radios(legend, options, chosen, choose) {
  const name = unique();
  const labels = options.map(([value, text]) => h("label", {}, h("input", {
    type: "radio", name, value, ...KEEP_KEYS, checked: value === chosen, onchange: () => choose(value),
  }), text));
  return h("fieldset", { class: "kx-group" }, h("legend", {}, legend), ...labels);
}

function checkbox(text, checked, change, dot = null) {
  const input = h("input", { type: "checkbox", ...KEEP_KEYS, checked, onchange: () => change(input.checked) });
  return h("label", {}, input, dot && h("span", { class: "kx-dot", style: `background:${dot}` }), text);
}

/** One control of an axis: a slider, radio buttons for names, or a box for an axis of two. */
function control(axis, position, move) {
  const last = axis.values.length - 1;
  if (axis.control === "box") {
    const label = checkbox(axis.label, position === 1, (on) => move(on ? 1 : 0));
    return { element: label, show: (at) => { label.querySelector("input").checked = at === 1; } };
  }
  if (axis.control === "names") {
    const group = radios(axis.label, axis.values.map((text, i) => [i, text]), position, move);
    const inputs = [...group.querySelectorAll("input")];
    return { element: group, show: (at) => { inputs[at].checked = true; } };
  }
  const output = h("output", {});
  const input = h("input", {
    type: "range", min: 0, max: last, step: 1, value: position, title: axis.hint, "aria-label": axis.hint, ...KEEP_KEYS,
    oninput: () => move(+input.value, false), onchange: () => move(+input.value, true),
  });
  const show = (at) => {
    input.value = at;
    output.textContent = axis.values[at];
    input.setAttribute("aria-valuetext", axis.values[at]);
  };
  show(position);
  return { element: h("label", { class: "kx-slider" }, h("span", {}, axis.label), input, output), show };
}

// ---------------------------------------------------------------------------------------------------- the explorer

/** What all kinds share: the position, the controls, and the requests to the Python kernel.
 *
 * `port` is null on a page; in a notebook it has `send(message)`, `store(state)` and `state()`, and it calls `heard`.
 */
class Explorer {
  constructor(root, data, port) {
    this.root = root;
    this.data = data;
    this.port = port;
    this.at = [...(port?.state()?.at ?? data.start)];
    this.before = null;
    this.asking = false;
    this.again = null;
    this.alert = h("div", { class: "kx-alert", role: "alert" });
    this.controls = data.axes.map((axis, i) => axis.values.length < 2 ? null
      : control(axis, this.at[i], (position, settled = true) => this.move(i, position, settled)));
    const sliders = h("div", { class: "kx-sliders" }, ...this.controls.filter((one) => one).map((one) => one.element));
    this.bar = h("div", { class: "kx-controls" }, sliders);
    this.body = h("div", {});
    root.replaceChildren(this.bar, this.alert, this.body);
    root.classList.add("kx");
    addStyle(root);
    this.tip = h("div", { class: "kx-tip", hidden: true });
    root.style.position = "relative";
    root.append(this.tip);
    this.build();
    this.draw();
    this.ask();
  }

  move(axis, position, settled = true) {
    const at = this.at.with ? this.at.with(axis, position) : this.at.map((v, i) => (i === axis ? position : v));
    this.go(at, settled);
  }

  /** Moves to a position. While a slider is being dragged (not `settled`) nothing is measured. */
  go(at, settled = true) {
    if (at.some((v, i) => v !== this.at[i])) {
      this.before = this.at;
      this.at = at;
      this.controls.forEach((one, i) => one?.show(at[i]));
      this.draw();
    }
    if (settled) {
      this.ask();  // first, because Python takes one message after the other
      this.port?.store(this.state());
    }
  }

  state() {
    return { at: this.at };
  }

  /** Requests what is missing; while a request is on its way, only the newest position is remembered. */
  ask() {
    const message = this.port && this.request();
    if (!message) return;
    if (this.asking) this.again = true;
    else {
      this.asking = true;
      this.port.send(message);
    }
  }

  /** A message from Python. */
  heard(message) {
    this.alert.textContent = message.error ?? "";
    this.take(message);
    if (message.answer) {
      this.asking = false;
      const again = this.again;
      this.again = null;
      if (again) this.ask();
    }
    this.draw();
  }

  point(event, text) {
    const box = this.root.getBoundingClientRect();
    this.tip.textContent = text;
    this.tip.hidden = false;
    const left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  away() {
    this.tip.hidden = true;
  }
}

/** Bars with intervals, the map of one kernel, and what is known about each kernel. */
class Kernels extends Explorer {
  build() {
    const { data } = this;
    const saved = this.port?.state() ?? {};
    this.shown = new Set(saved.shown ?? data.kernels.map((_, i) => i));
    this.mapped = saved.mapped ?? data.kernels.findIndex((kernel) => kernel.mapped);
    this.gpu = saved.gpu ?? 0;  // the number of a GPU, or -1: all of them
    this.rival = null;
    this.wondered = new Set();
    this.open = false;
    const boxes = data.kernels.map((kernel, i) => checkbox(kernel.name, this.shown.has(i), (on) => {
      if (on) this.shown.add(i);
      else this.shown.delete(i);
      this.changed();
    }, kernel.color));
    const row = h("div", { class: "kx-row" }, h("fieldset", { class: "kx-group" }, h("legend", {}, "Kernels"), ...boxes));
    const mapped = data.kernels.flatMap((kernel, i) => (kernel.mapped ? [[i, kernel.name]] : []));
    if (mapped.length > 1) row.append(radios("Map of", mapped, this.mapped, (i) => { this.mapped = i; this.changed(); }));
    if (data.gpus.length > 1) {
      const gpus = [...data.gpus.map((gpu, i) => [i, gpu.name]), [-1, "all"]];
      row.append(radios("GPU", gpus, this.gpu, (i) => { this.gpu = i; this.changed(); }));
    }
    if (this.port && data.all) row.append(this.all = h("button", { type: "button", onclick: () => this.port.send({ kind: this.going ? "stop" : "all", ...this.state() }) }, data.all));
    if (this.port) {
      row.append(h("button", { type: "button", onclick: () => this.port.send({ kind: "save", ...this.state() }) }, "Save page and table"));
    }
    this.status = h("span", { role: "status" });
    row.append(this.status);
    this.bar.append(row);
    this.title = h("div", { class: "kx-title" });
    this.note = h("div", { class: "kx-note" });
    this.bars = h("div", { class: "kx-figure" });
    this.map = h("div", { class: "kx-figure" });
    this.lines = h("div", { class: "kx-lines", role: "status" });
    this.why = h("div", {});
    this.body.replaceChildren(this.title, this.note, h("div", { class: "kx-figures" }, this.bars, this.map), this.lines, this.why);
    this.map.addEventListener("click", (event) => {
      const cell = event.target.closest(".kx-cell");
      if (cell) this.go(cell.at);
    });
    this.map.addEventListener("pointermove", (event) => {
      const cell = event.target.closest(".kx-cell");
      if (cell) this.point(event, cell.tip);
      else this.away();
    });
    this.map.addEventListener("pointerleave", () => this.away());
  }

  /** The GPU whose map and sentences are shown. */
  get first() {
    return Math.max(0, this.gpu);
  }

  state() {
    return { at: this.at, shown: [...this.shown].sort((a, b) => a - b), mapped: this.mapped, gpu: this.gpu };
  }

  changed() {
    this.drawn = null;
    this.draw();
    this.ask();
    this.port?.store(this.state());
  }

  request() {
    if (!this.data.measures || this.first !== 0) return null;
    const kernels = missing(this.data, [...this.shown], this.at);
    return kernels.length ? { kind: "rows", kernels, ...this.state() } : null;
  }

  take(message) {
    const gpu = this.data.gpus[0];
    if (message.rows) {
      Object.assign(gpu.rows, message.rows);
      gpu.top = message.top;
      gpu.ceilings = message.ceilings;
      this.drawn = null;
    }
    if (message.why) {
      const row = gpu.rows[message.why[0]];
      if (row) row.others = { ...row.others, [message.why[1]]: message.why[2] };
    }
    if (message.has_counters !== undefined) gpu.counted = message.has_counters;
    if (message.counted) {
      this.open = true;
      this.wondered.clear();
    }
    if (message.status !== undefined) this.status.textContent = message.status;
    if (message.going !== undefined && this.all) {
      this.going = message.going;
      this.all.textContent = this.going ? "Stop" : this.data.all;
    }
  }

  draw() {
    const { data, at } = this;
    const gpu = data.gpus[this.first];
    this.title.textContent = data.titles[data.sizes.map((i) => at[i]).join(",")];
    this.note.textContent = gpu.note;
    this.drawBars();
    this.drawMap();
    const lines = [...this.shown].sort((a, b) => a - b).filter((i) => data.kernels[i].mapped).map((i) => {
      const row = rowAt(data, this.first, i, at);
      return h("div", {}, h("b", {}, data.kernels[i].name), `: ${row ? row.line : this.absent()}`);
    });
    this.lines.replaceChildren(...lines);
    this.drawWhy();
  }

  absent() {
    return this.asking ? "measuring …" : this.data.absent;
  }

  drawBars() {
    const { data, at } = this;
    const gpus = this.gpu < 0 ? data.gpus.map((_, i) => i) : [this.gpu];
    const top = Math.max(...gpus.map((g) => data.gpus[g].top));
    const ceilings = gpus.map((g) => ceilingAt(data, g, at));
    const percent = (value) => `${(100 * value) / top}%`;
    const bars = [...this.shown].sort((a, b) => a - b).map((k) => {
      const { name, color } = data.kernels[k];
      const parts = gpus.flatMap((g, n) => {
        const row = rowAt(data, g, k, at);
        const text = row ? row.text : g === 0 ? this.absent() : data.absent;
        const label = h("div", { class: "kx-label" }, n === 0 ? h("b", {}, name) : null, gpus.length > 1 ? h("span", {}, `${data.gpus[g].name}:`) : null,
          h("span", { class: row && row.bad ? "kx-wrong" : null }, text));
        const track = h("div", { class: `kx-track${n % 2 ? " kx-second" : ""}`, title: row?.tip });
        if (row && row.v !== null) {
          track.append(h("i", { style: `width:${percent(row.v)};background:${color}` }));
          if (row.hi) track.append(h("u", { style: `left:${percent(row.lo)};width:${percent(row.hi - row.lo)}` }));
        }
        if (ceilings[n]) track.append(h("s", { style: `left:${percent(ceilings[n].v)}` }));
        return [label, track];
      });
      return h("div", { class: "kx-bar" }, ...parts);
    });
    const texts = gpus.flatMap((g, n) => ceilings[n] ? [`${gpus.length > 1 ? `${data.gpus[g].name}: ` : ""}${ceilings[n].text}`] : []);
    this.bars.replaceChildren(h("div", { class: "kx-caption" }, data.value_title), ...bars, h("div", { class: "kx-scale" },
      ...(texts.length ? [h("span", {}, h("b", {}), texts.join(" · "))] : []),
      ...(data.interval ? [h("span", {}, data.interval)] : [])));
  }

  /** Builds the map again only if another one is shown; otherwise only the frame moves. */
  drawMap() {
    const { data, at } = this;
    const [x, y] = data.map;
    const same = [this.first, this.mapped, ...at.filter((_, i) => i !== x && i !== y)].join();
    if (this.drawn !== same) {
      this.drawn = same;
      this.cells = [];
      const gpu = data.gpus[this.first], name = data.kernels[this.mapped].name;
      const grid = h("div", {
        class: `kx-map${data.axes[x].values.length > 8 ? " kx-dense" : ""}`, role: "img",
        "aria-label": `Map of ${name} in ${data.unit}, by ${data.axes[x].hint} and ${data.axes[y].hint}. Move the sliders to read its values.`,
        style: `--kx-columns: ${data.axes[x].values.length}`,
      });
      for (const line of cellsOf(data, this.first, this.mapped, at)) {
        grid.append(h("div", { class: "kx-tick" }, data.axes[y].values[line[0].at[y]]));
        for (const { at: position, row } of line) {
          const where = `${data.axes[x].label} ${data.axes[x].values[position[x]]}, ${data.axes[y].label} ${data.axes[y].values[position[y]]}`;
          const value = shadeOf(row), known = value !== null;
          const color = known && shade(data.heat, value / gpu.top);
          const cell = h("div", {
            class: `kx-cell${known ? "" : row ? " kx-refused" : " kx-none"}`, style: known ? `background:${color};color:${ink(color)}` : "",
          }, h("span", {}, known ? row.cell : row ? row.verdict : ""));
          cell.at = position;
          cell.tip = `${where}\n${row ? row.tip : data.absent}`;
          this.cells.push(cell);
          grid.append(cell);
        }
      }
      grid.append(h("div", {}), ...data.axes[x].values.map((text) => h("div", { class: "kx-tick kx-below" }, text)),
        h("div", {}), h("div", { class: "kx-axis" }, `↑ ${data.axes[y].hint} · → ${data.axes[x].hint}`));
      this.map.replaceChildren(h("div", { class: "kx-caption" }, `${name}: ${data.unit}`), grid);
    }
    for (const cell of this.cells) cell.classList.toggle("kx-here", cell.at[x] === at[x] && cell.at[y] === at[y]);
  }

  /** What the counters say about the difference between the mapped kernel and another one. */
  drawWhy() {
    const { data, at } = this;
    const gpu = data.gpus[this.first];
    const mine = rowAt(data, this.first, this.mapped, at);
    const others = [...this.shown].filter((i) => i !== this.mapped).sort((a, b) => a - b);
    const canCount = this.port && data.counts && this.first === 0;
    if (!mine || !others.length || !(canCount || gpu.counted)) {
      this.why.replaceChildren();
      return;
    }
    const rival = others.includes(this.rival) ? this.rival : mine.why && others.includes(mine.why[0]) ? mine.why[0] : others[0];
    const theirs = rowAt(data, this.first, rival, at);
    const known = mine.why?.[0] === rival ? mine.why[1] : mine.others?.[rival];
    const pair = `${rowKey(data, this.mapped, at)} ${rival}`;
    if (known === undefined && this.port && this.first === 0 && !this.asking && !this.wondered.has(pair)) {
      this.asking = true;
      this.wondered.add(pair);  // once: an error is no reason to ask again
      this.port.send({ kind: "why", rival, ...this.state() });
    }
    const row = h("div", { class: "kx-row" },
      radios("Compare with", others.map((i) => [i, data.kernels[i].name]), rival, (i) => { this.rival = i; this.drawWhy(); this.why.querySelector(`input[value="${i}"]`)?.focus(); }));
    if (mine.c || theirs?.c) {
      const button = h("button", { type: "button", "aria-expanded": String(this.open), onclick: () => { this.open = !this.open; this.drawWhy(); this.why.querySelector("[aria-expanded]").focus(); } },
        this.open ? "Hide the counters" : "Show the counters");
      row.append(button);
    }
    if (canCount) {
      row.append(h("button", { type: "button", onclick: () => {
        this.status.textContent = "Nsight Compute is counting …";
        this.port.send({ kind: "count", rival, ...this.state() });
      } }, data.counts));
    }
    const parts = [row, h("p", { style: "margin:4px 0", role: "status" }, known ?? "")];
    if (this.open && (mine.c || theirs?.c)) parts.push(this.counters(mine, theirs, rival));
    this.why.replaceChildren(...parts);
  }

  counters(mine, theirs, rival) {
    const { data } = this;
    const before = this.before && rowAt(data, this.first, this.mapped, this.before);
    const rows = data.counters.map((title, i) => {
      const now = mine.c?.[i] ?? "–", was = before?.c?.[i];
      return h("tr", {}, h("th", { scope: "row" }, title),
        h("td", {}, now, was !== undefined && was !== now ? h("span", { class: "kx-was" }, ` (was ${was})`) : null),
        h("td", {}, theirs?.c?.[i] ?? "–"));
    });
    const head = h("tr", {}, h("th", { scope: "col" }, "Counter"), ...[this.mapped, rival].map((i) => h("th", { scope: "col" }, data.kernels[i].name)));
    return scroller({ class: "kx-scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows)), h("div", { class: "kx-note" }, data.counters_note));
  }
}

/** Lesson 02's picture: which block, warp and sector each element of a matrix's corner belongs to. */
class Grid extends Explorer {
  build() {
    const { data } = this;
    this.title = h("div", { class: "kx-title" });
    this.line = h("div", { role: "status" });
    this.picture = h("div", { class: "kx-grid" });
    const brackets = Array.from({ length: data.n_cols / 32 }, (_, i) => h("span", {}, `row 0: 128-byte line ${i}`));
    this.body.replaceChildren(this.title, this.line, h("div", { class: "kx-note" }, data.legend),
      h("div", { class: "kx-brackets", style: `--kx-columns: ${brackets.length}` }, ...brackets), this.picture);
    this.picture.addEventListener("pointermove", (event) => {
      const box = this.picture.getBoundingClientRect();
      const col = Math.floor(((event.clientX - box.left) / box.width) * data.n_cols);
      const row = Math.floor(((event.clientY - box.top) / box.height) * data.n_rows);
      if (col < 0 || row < 0 || col >= data.n_cols || row >= data.n_rows) return;
      const [blockX, blockY] = this.shape();
      const one = place(row, col, blockX, blockY);
      this.point(event, `element (${row}, ${col})\nblock (${one.block.join(", ")}), thread (${one.thread.join(", ")})\n`
        + `warp ${one.warp}, lane ${one.lane}\nsector ${col >> 3} of its row`);
    });
    this.picture.addEventListener("pointerleave", () => this.away());
  }

  shape() {
    return [0, 1].map((i) => this.data.axes[i].numbers[this.at[i]]);
  }

  request() {
    return this.data.lines[this.at.join(",")] === undefined ? { kind: "line", ...this.state() } : null;
  }

  take(message) {
    Object.assign(this.data.lines, message.lines);
  }

  draw() {
    const { data } = this;
    const [blockX, blockY] = this.shape();
    this.title.textContent = `Blocks of ${blockX} × ${blockY} threads (x × y)`;
    this.line.textContent = data.lines[this.at.join(",")] ?? "measuring …";
    if (this.drawn === `${blockX},${blockY}`) return;
    this.drawn = `${blockX},${blockY}`;
    const paths = Array.from({ length: 8 }, () => "");
    for (let row = 0; row < data.n_rows; row++) {
      for (let col = 0; col < data.n_cols; col++) {
        paths[colorOf(place(row, col, blockX, blockY))] += `M${col} ${row}h1v1h-1z`;
      }
    }
    const lines = (step, n, across) => Array.from({ length: Math.floor(n / step) + 1 }, (_, i) => (across ? `M${i * step} 0V${data.n_rows}` : `M0 ${i * step}H${data.n_cols}`)).join("");
    const colors = [...data.colors, "currentColor"];
    this.picture.innerHTML = `<svg viewBox="-.2 -.2 ${data.n_cols + 0.4} ${data.n_rows + 0.4}" role="img" aria-label="${data.n_rows} × ${data.n_cols} elements, colored by warp">`
      + paths.map((path, i) => `<path d="${path}" fill="${colors[i]}" opacity="${i === 7 ? 1 : 0.8}"/>`).join("")
      + `<path d="${lines(8, data.n_cols, true)}" stroke="#ffffff" stroke-width=".1"/>`
      + `<path d="${lines(blockX, data.n_cols, true)}${lines(blockY, data.n_rows, false)}" stroke="currentColor" stroke-width=".25"/></svg>`;
  }
}

const LONGEST = 400;  // lines of a text that are shown
const AROUND = 3;  // equal lines that are shown next to a difference

/** Source, PTX and SASS of a kernel, and what changed since the last position. */
class Code extends Explorer {
  build() {
    const { data } = this;
    this.view = "code";
    this.exact = false;
    this.kept = this.at;
    this.css = unique();
    this.previous = null;
    this.made = {};
    this.facts = h("div", { role: "status" });
    this.source = h("div", {});
    this.panes = h("div", { class: "kx-panes" });
    const views = radios("Show", [["code", "PTX and SASS"], ["ptx", "diff of PTX"], ["sass", "diff of SASS"]], "code", (view) => { this.view = view; this.draw(); });
    const exact = checkbox("compare registers too", false, (on) => { this.exact = on; this.draw(); });
    const keep = h("button", { type: "button", onclick: () => { this.kept = this.at; this.draw(); } }, "Compare with this position");
    this.body.replaceChildren(this.facts, h("div", { class: "kx-row" }, views, keep, exact), this.source, this.panes);
    this.body.addEventListener("pointerover", (event) => this.light(event.target.closest("[data-source]")?.dataset.source));
    this.body.addEventListener("pointerleave", () => this.light(null));
    this.rules = h("style", {});
    this.root.append(this.rules);
    this.root.classList.add(this.css);
    this.picked = null;
    if (data.note) this.body.prepend(h("div", { class: "kx-note" }, data.note));
  }

  position(at = this.at) {
    return this.data.positions[at.join(",")];
  }

  request() {
    const now = this.position();
    return now === undefined || !(now.sass || now.refused) ? { kind: "code", ...this.state() } : null;
  }

  take(message) {
    const { positions } = this.data;
    for (const [key, found] of Object.entries(message.positions ?? {})) {
      positions[key] = { ...found, ptx: positions[key]?.ptx ?? found.ptx };  // the same array, so its pane stays
    }
  }

  move(axis, position, settled = true) {
    if (this.port && !settled && this.data.positions[this.at.map((v, i) => (i === axis ? position : v)).join(",")] === undefined) {
      this.controls[axis].show(position);  // compile only where the slider comes to rest
      return;
    }
    super.move(axis, position, settled);
  }

  draw() {
    const now = this.position();
    if (now === undefined) {
      this.facts.textContent = this.port ? "compiling …" : "This position is not on this page.";
      if (!this.port) this.panes.replaceChildren();
      return;
    }
    if (now.refused) {
      this.facts.textContent = `refused: ${now.refused}`;
      this.panes.replaceChildren();
      return;
    }
    if (this.shownAt !== this.at) {
      this.previous = this.shownAt;
      this.shownAt = this.at;
    }
    const last = this.previous && this.position(this.previous), before = last?.refused ? null : last;
    this.facts.replaceChildren(h("div", { class: "kx-facts" }, ...this.data.facts.map((title, i) => {
      const value = now.facts[i], was = before && value !== undefined && before.facts[i] !== value ? before.facts[i] : undefined;
      return h("div", {}, h("span", {}, title), h("span", {}, h("b", {}, value === undefined ? "…" : value.toLocaleString("en")),
        was === undefined ? null : h("span", { class: "kx-alert" }, ` (was ${was.toLocaleString("en")})`)));
    })));
    this.drawSource(now);
    const panes = this.view === "code" ? ["ptx", "sass"].map((kind) => this.pane(kind, now, before)) : [this.difference(this.view)];
    panes.forEach((pane, i) => {  // one that is the same stays, and stays scrolled
      if (this.panes.children[i] === pane) return;
      while (this.panes.children.length > i) this.panes.lastChild.remove();
      this.panes.append(pane);
    });
    this.light(null);
  }

  drawSource(now) {
    const lines = now.source ?? this.data.source;
    if (this.sourceShown === lines) return;
    this.sourceShown = lines;
    const used = now.colors ?? this.data.source_colors;
    this.used = used;
    const name = unique();
    const pick = (number) => ({ type: "radio", name, ...KEEP_KEYS, onchange: () => { this.picked = number; this.light(null); } });
    const rows = lines.map(([number, , text]) => (used[number]
      ? h("label", { class: "kx-code", "data-source": number }, h("input", { ...pick(String(number)), "aria-label": `source line ${number}` }), h("b", {}, String(number)), `  ${text || " "}`)
      : h("span", { class: "kx-code" }, h("span", { class: "kx-number" }, `   ${number}`), `  ${text || " "}`)));
    rows.push(h("label", { class: "kx-code" }, h("input", { ...pick(null), checked: true }), "no line selected"));
    const pane = h("div", { class: "kx-pane kx-source" }, h("div", { class: "kx-head" }, "source: point at a line, or select it"),
      scroller({ class: "kx-text" }, ...rows));
    this.source.replaceChildren(pane);
    this.tints = Object.entries(used).map(([n, rgb]) => `.${this.css} [data-source="${n}"]{border-left-color:rgb(${rgb});background:rgba(${rgb},.12)}`).join("");
  }

  /** Highlights the lines that came from one source line: the one pointed at, or the selected one. */
  light(number) {
    const wanted = number ?? this.picked;
    const rgb = wanted && this.used?.[wanted];
    const text = `${this.tints}${rgb ? `.${this.css} [data-source="${wanted}"]{background:rgba(${rgb},.5)}` : ""}`;
    if (this.rules.textContent !== text) this.rules.textContent = text;
  }

  line(kind, [number, source, text, bytes], sign = " ", isNew = false) {
    const [before, opcode, after] = opcodeOf(kind, text.trim());
    const width = this.data.byte_colors[bytes];
    return h("span", { class: `kx-code${isNew ? " kx-new" : ""}`, "data-source": source || null },
      h("span", { class: "kx-sign" }, sign), h("span", { class: "kx-number" }, String(number).padStart(4)), " ", h("b", {}, String(source || "").padStart(3)), " ",
      h("span", { class: "kx-bytes", style: width ? `border-color:${width}` : "" }, bytes ? `${bytes} B` : ""), before, opcode ? h("b", {}, opcode) : "", after);
  }

  /** A pane for lines that are not there: SASS arrives after the PTX, and a kept position may not compile. */
  waiting(kind, why = "disassembling …") {
    return h("div", { class: "kx-pane" }, h("div", { class: "kx-head" }, this.data.titles[kind]), h("div", { class: "kx-legend" }, why));
  }

  pane(kind, now, before) {
    const lines = now[kind], old = before?.[kind], last = this.made[kind];
    if (!lines) return this.waiting(kind);
    if (last?.lines === lines && last.old === old) return last.pane;
    const { added, gone } = news(kind, old, lines);
    const rows = lines.slice(0, LONGEST).map((one, i) => this.line(kind, one, added.has(i) ? "+" : " ", added.has(i)));
    if (lines.length > LONGEST) rows.push(h("span", { class: "kx-code kx-number" }, `… and ${(lines.length - LONGEST).toLocaleString("en")} more lines`));
    const title = before ? `${this.data.titles[kind]}: ${added.size} lines new (+), ${gone} gone` : this.data.titles[kind];
    const pane = h("div", { class: "kx-pane" }, h("div", { class: "kx-head" }, title), h("div", { class: "kx-legend" }, this.data.bytes_note),
      scroller({ class: "kx-text" }, ...rows));
    this.made[kind] = { lines, old, pane };
    return pane;
  }

  /** The kept position on the left, the present one on the right. */
  difference(kind) {
    const kept = this.position(this.kept), now = this.position();
    if (!kept?.[kind] || !now[kind]) return this.waiting(kind, kept?.refused && `The kept position is refused: ${kept.refused}`);
    const [left, right] = [kept[kind].slice(0, LONGEST), now[kind].slice(0, LONGEST)];
    const read = (line) => (this.exact ? line[2].trim() : essence(kind, line[2]));
    const rows = sideBySide(left.map(read), right.map(read));
    const count = (sign) => rows.filter((row) => row[2] === sign).length;
    const near = rows.map((_, n) => rows.slice(Math.max(0, n - AROUND), n + AROUND + 1).some((row) => row[2] !== "="));
    const cells = [];
    for (let n = 0; n < rows.length; n++) {
      if (!near[n]) {
        let end = n;
        while (end < rows.length && !near[end]) end++;
        if (end - n > 1) {
          cells.push(h("span", { class: "kx-same" }, `… ${end - n} lines are the same`));
          n = end - 1;
          continue;
        }
      }
      const [i, j, sign] = rows[n];
      cells.push(i === null ? h("span", {}) : this.line(kind, left[i], sign === "=" ? " " : sign, sign !== "="),
        j === null ? h("span", {}) : this.line(kind, right[j], sign === "=" ? " " : sign, sign !== "="));
    }
    const where = (at) => this.data.axes.map((axis, i) => `${axis.label} ${axis.values[at[i]]}`).join(", ");
    return h("div", { class: "kx-pane kx-wide" },
      h("div", { class: "kx-head", role: "status" }, `${count("~")} lines changed (~), ${count("-")} only left (-), ${count("+")} only right (+)`),
      scroller({ class: "kx-text" }, h("div", { class: "kx-sides" },
        h("span", { class: "kx-head" }, `kept: ${where(this.kept)}`), h("span", { class: "kx-head" }, `now: ${where(this.at)}`), ...cells)));
  }
}

const KINDS = { kernels: Kernels, grid: Grid, ptx: Code };

/** Draws data into an element. */
export function mount(element, data, port = null) {
  return new KINDS[data.kind](element, data, port);
}

/** The data behind a packed text: JSON, compressed by zlib, in base64. */
export async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** Replaces the still picture of every explorer on a page by the sliders. */
export function upgrade(root) {
  for (const element of root.querySelectorAll(".kx-packed")) {
    const packed = element.querySelector("script").textContent;
    unpack(packed).then((data) => mount(element, data)).catch((error) => console.error(error));
  }
}

// ---------------------------------------------------------------------------------------------------- anywidget

/** Called once per widget; its views share the data. */
export default () => {
  const views = new Set();
  let loading;
  return {
    initialize({ model }) {
      loading = unpack(model.get("data"));
      model.on("msg:custom", async (message) => {
        await loading;
        for (const view of views) view.heard(message);
      });
    },
    async render({ model, el }) {
      const data = await loading;
      const root = h("div", {});
      el.replaceChildren(root);
      const view = mount(root, data, {
        send: (message) => model.send(message),
        state: () => model.get("state"),
        store: (state) => {
          model.set("state", state);
          model.save_changes();
        },
      });
      views.add(view);
      return () => views.delete(view);
    },
  };
};
