// Draws the page of one report. Everything shown is computed from the JSON that the page carries.

const report = JSON.parse(document.getElementById("report").textContent);
const isBackward = report.schema === "heed-bench-backward";
if (isBackward) report.rows = report.rows.map(asProgram);
const timed = report.rows.filter((row) => row.status === "timed");
const peerIds = [...new Set(report.rows.map((row) => row.peer))];
const OWN = peerIds.find((id) => id.startsWith("heed")) ?? peerIds[0];
const isOwn = (id) => id === OWN || id.startsWith("heed");

const number = (value) =>
  value === undefined || value === null ? "-" : Number(value.toPrecision(3)).toString();
const milliseconds = (ms) => (ms >= 1000 ? `${number(ms / 1000)} s` : `${number(ms)} ms`);

/** A row of gradients as one of a program: of heed, the only one that has them. */
function asProgram(row) {
  const fraction_of_fma_peak = row.fraction_of_peak;
  return { ...row, shape: row, peer: "heed", dtype: "float32", fraction_of_fma_peak };
}

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "circle"].includes(name);
  const node = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const HINT = "Point at a mark to read its numbers; arrow keys step from mark to mark.";

/** What a row is, but for the program and the words that `without` names. */
function problemOf(row, ...without) {
  const { shape } = row;
  const heads = shape.num_kv_heads === shape.num_heads ? "" : `:${shape.num_kv_heads}`;
  const values =
    (shape.head_dim_v ?? shape.head_dim) === shape.head_dim ? "" : `:${shape.head_dim_v}`;
  const length = shape.q_len === shape.kv_len ? shape.q_len : `${shape.q_len} x ${shape.kv_len}`;
  return [
    row.model ?? (!without.includes("mechanism") && row.mechanism),
    shape.batch > 1 && `batch ${shape.batch}`,
    `${shape.num_heads}${heads} heads of ${shape.head_dim}${values}`,
    !without.includes("length") && `length ${length}`,
    !without.includes("mask") && shape.mask,
    shape.window_left !== undefined && `window ${shape.window_left}`,
    shape.softcap !== undefined && `softcap ${shape.softcap}`,
    shape.sinks && "sinks",
    shape.alibi && "ALiBi",
    shape.key_length && `${shape.key_length} keys${shape.device_lengths ? " (device)" : ""}`,
    row.resident && "keys kept",
    row.dtype !== "float32" && !without.includes("kind") && row.dtype,
    row.threads > 1 && !without.includes("kind") && `${row.threads} threads`,
    !without.includes("kind") && row.place,
  ]
    .filter(Boolean)
    .join(", ");
}

const overForward = ({ ms, forward_ms }) => ms.median / forward_ms.median;

const describe = (row) =>
  `${row.peer}: ${problemOf(row)}. ${milliseconds(row.ms.median)} (p10 ${milliseconds(row.ms.p10)}, ` +
  `p90 ${milliseconds(row.ms.p90)})${row.gflops ? `, ${number(row.gflops)} GFLOP/s` : ""}` +
  `${row.fraction_of_fma_peak ? `, ${number(100 * row.fraction_of_fma_peak)} % of the peak` : ""}` +
  `${row.gbps ? `, ${number(row.gbps)} GB/s` : ""}` +
  `${row.forward_ms ? `, ${number(overForward(row))} times forward` : ""}; error ${number(row.max_error)}, bound ${number(row.error_bound)}.`;

function groupBy(rows, key) {
  const groups = new Map();
  for (const row of rows) groups.set(key(row), [...(groups.get(key(row)) ?? []), row]);
  return groups;
}

/** A select that calls `show(value)` now and on every change; nothing to choose from shows no select. */
function choice(place, label, values, show) {
  if (values.length > 1) {
    const select = element("select", {}, ...values.map((value) => element("option", {}, value)));
    select.addEventListener("change", () => show(select.value));
    place.append(element("label", {}, label, select));
  }
  if (values.length > 0) show(values[0]);
}

const hide = (id) => {
  document.getElementById(id).hidden = true;
};

// Context.

function showContext() {
  const { machine, build, probes, plan } = report;
  const rows = report.rows.filter((row) => row.status !== "refused");
  const wrong = rows.filter((row) => row.status === "wrong");
  const cases = new Set(rows.map((row) => row.case)).size;
  document.getElementById("summary").textContent =
    `${cases} problems, ${peerIds.length} program${peerIds.length > 1 ? "s" : ""}. ` +
    (wrong.length
      ? `${wrong.length} rows are outside their error bound and have no speed.`
      : "Every program was within its error bound before it was timed.");
  const fma = (probes?.fma ?? []).filter((p) => machine.gpu || p.target === machine.simd?.chosen);
  const peakText = (p) =>
    `${number(p.gflops)} GFLOP/s ${p.dtype ? `of ${p.dtype} (${p.target})` : `with ${p.threads} thread(s)`}`;
  const entries = {
    GPU: machine.gpu && `${machine.gpu.name}, driver ${machine.gpu.driver}`,
    machine: `${machine.cpu_model}, ${machine.cores} cores, ${machine.system}`,
    build: build && `${build.compiler}, ${build.build_type}, commit ${build.commit || "unknown"}`,
    "SIMD target": machine.gpu ? "" : machine.simd?.chosen,
    peaks: fma.map(peakText).join(", "),
    "read rate": probes?.stream
      ?.map(
        (s) => `${number(s.read_gbps)} GB/s${machine.gpu ? "" : ` with ${s.threads} thread(s)`}`,
      )
      .join(", "),
    command: report.command,
    measured: `${report.date}, load ${number(machine.load_average)}, ${plan.clock} clock`,
  };
  const list = document.getElementById("context");
  for (const [name, text] of Object.entries(entries)) {
    if (text) list.append(element("dt", {}, name), element("dd", {}, text));
  }
  document.getElementById("method").textContent = report.flop_formula
    ? `FLOP: ${report.flop_formula}. Schema ${report.schema} ${report.schema_version}.`
    : `Schema ${report.schema} ${report.schema_version}.`;
}

// Bars.

const speed = (row) => row.gflops ?? 1 / row.ms.median;

function bar(row, most) {
  const scale = speed(row) * row.ms.median;
  const percent = (ms) => (100 * scale) / ms / most;
  const filled = element("span", { style: `width: ${percent(row.ms.median)}%` });
  const [from, to] = [percent(row.ms.p90), Math.min(100, percent(row.ms.p10))];
  const spread = element("span", {
    class: "spread",
    style: `left: ${from}%; width: ${Math.max(0, to - from)}%`,
  });
  const text = row.gflops ? `${number(row.gflops)} GFLOP/s` : milliseconds(row.ms.median);
  return element(
    "div",
    { class: isOwn(row.peer) ? "bar heed" : "bar", title: describe(row) },
    element("span", { class: "name" }, row.bar ?? row.peer),
    element("span", { class: "track" }, filled, spread),
    element("span", { class: "value" }, text),
  );
}

const highest = (rows) => Math.max(...rows.map((row) => (speed(row) * row.ms.median) / row.ms.p10));

/** Bars of GFLOP/s share one scale, `most`; others are only comparable within their panel. */
function panel(title, rows, most) {
  const scale = rows.every((row) => row.gflops) ? most : highest(rows);
  const bars = rows.map((row) => bar(row, scale));
  return element("div", { class: "panel" }, element("h3", {}, title), ...bars);
}

/** One panel a problem, or, of a single program, one panel for all that is alike but the mechanism. */
function barPanels(rows) {
  const most = highest(rows.filter((row) => row.gflops));
  const cases = groupBy(rows, (row) => row.case);
  if ([...cases.values()].some((group) => group.length > 1)) {
    const title = (row) => problemOf(row, "mechanism", "mask", "kind");
    return [...cases.values()].map((group) => panel(title(group[0]), group, most));
  }
  const sorted = [...rows].sort((a, b) => speed(b) - speed(a));
  const named = sorted.map((row) => ({ ...row, bar: row.model ?? row.mechanism }));
  const groups = groupBy(named, (row) => problemOf({ ...row, model: undefined }, "mechanism"));
  return [...groups].map(([title, group]) => panel(title, group, most));
}

function showBars() {
  const figure = document.getElementById("bars-figure");
  const kind = (row) =>
    [
      row.model ? "named shapes" : row.mechanism,
      row.model ? "" : row.shape.mask,
      row.dtype,
      `${row.threads} thread${row.threads > 1 ? "s" : ""}`,
      row.place,
    ]
      .filter(Boolean)
      .join(", ");
  const groups = groupBy(timed, peerIds.length === 1 ? () => "all" : kind);
  choice(document.getElementById("bars-controls"), "problems", [...groups.keys()], (name) =>
    figure.replaceChildren(...barPanels(groups.get(name))),
  );
}

// Figures with two logarithmic axes.

const MARGIN = { left: 56, right: 16, top: 16, bottom: 44 };
const MARKS = [
  (r) => `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`,
  (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
  (r) => `M0 ${-r * 1.3}L${r * 1.2} ${r}H${-r * 1.2}Z`,
  (r) => `M0 ${-r * 1.4}L${r * 1.4} 0L0 ${r * 1.4}L${-r * 1.4} 0Z`,
  (r) => `M${-r * 1.2} ${-r}H${r * 1.2}L0 ${r * 1.3}Z`,
];
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4"];
const ownFirst = [...peerIds].sort((a, b) => isOwn(b) - isOwn(a));
const styleOf = (peer) => Math.max(0, ownFirst.indexOf(peer)) % MARKS.length;

/** Shapes tell programs apart, and after all shapes were used, whether they are filled. */
function mark(peer, radius) {
  const round = Math.floor(ownFirst.indexOf(peer) / MARKS.length) % 2;
  return element("path", {
    d: MARKS[styleOf(peer)](radius),
    class: `mark${isOwn(peer) ? " heed" : ""}${round ? " hollow" : ""}`,
  });
}

function ticks(low, high, most) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (const digit of [1, 2, 5]) all.push(digit * 10 ** power);
  }
  const inside = all.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  const tens = inside.filter((tick) => Math.abs(Math.log10(tick) % 1) < 1e-9);
  return inside.length <= most || tens.length < 2 ? inside.slice(0, most + 2) : tens;
}

class Plot {
  constructor(figure, { x, y, xTitle, yTitle, xText = number, yText = number, xTicks }) {
    this.figure = figure;
    this.width = Math.max(300, figure.clientWidth);
    this.height = Math.min(440, Math.max(300, this.width * 0.55));
    const pad = (values, by) => [Math.min(...values) / by, Math.max(...values) * by];
    [this.xLow, this.xHigh] = pad(x, 1.15);
    [this.yLow, this.yHigh] = pad(y, 1.3);
    this.svg = element("svg", {
      viewBox: `0 0 ${this.width} ${this.height}`,
      tabindex: 0,
      role: "img",
      "aria-label": `${yTitle} against ${xTitle}. Arrow keys go through the points.`,
    });
    this.readout = element("p", { class: "readout", "aria-live": "polite" }, HINT);
    figure.replaceChildren(this.svg, this.readout);
    this.points = [];
    this.axes(xTitle, yTitle, xText, yText, xTicks);
  }
  x(value) {
    const part = Math.log(value / this.xLow) / Math.log(this.xHigh / this.xLow);
    return MARGIN.left + part * (this.width - MARGIN.left - MARGIN.right);
  }
  y(value) {
    const part = Math.log(value / this.yLow) / Math.log(this.yHigh / this.yLow);
    return this.height - MARGIN.bottom - part * (this.height - MARGIN.top - MARGIN.bottom);
  }
  text(x, y, text, attributes = {}) {
    this.svg.append(element("text", { x: x.toFixed(1), y: y.toFixed(1), ...attributes }, text));
  }
  path(d, attributes) {
    const node = element("path", { d, ...attributes });
    this.svg.append(node);
    return node;
  }
  axes(xTitle, yTitle, xText, yText, xTicks) {
    const bottom = this.height - MARGIN.bottom;
    const right = this.width - MARGIN.right;
    for (const tick of ticks(this.yLow, this.yHigh, 8)) {
      const at = this.y(tick).toFixed(1);
      this.path(`M${MARGIN.left} ${at}H${right}`, { class: "grid" });
      this.text(MARGIN.left - 8, this.y(tick) + 4, yText(tick), { "text-anchor": "end" });
    }
    let last = -Infinity;
    for (const tick of xTicks ?? ticks(this.xLow, this.xHigh, this.width / 80)) {
      if (this.x(tick) - last < 44) continue;
      last = this.x(tick);
      this.path(`M${last.toFixed(1)} ${bottom}V${MARGIN.top}`, { class: "grid" });
      this.text(last, bottom + 18, xText(tick), { "text-anchor": "middle" });
    }
    this.text((MARGIN.left + right) / 2, this.height - 6, xTitle, { "text-anchor": "middle" });
    this.text(4, 12, yTitle, {});
  }
  point(xValue, yValue, row) {
    const [x, y] = [this.x(xValue), this.y(yValue)];
    const node = mark(row.peer, isOwn(row.peer) ? 5 : 4.5);
    node.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    this.svg.append(node);
    this.points.push({ x, y, row, node });
  }
  /** Hover shows the nearest point, a click pins it, Escape lets go, arrows step. */
  interactive() {
    let pinned = false;
    let at = -1;
    const show = (index) => {
      this.points[at]?.node.classList.remove("shown");
      at = index;
      this.points[at]?.node.classList.add("shown");
      this.readout.textContent = at < 0 ? HINT : describe(this.points[at].row);
    };
    const nearest = (event) => {
      const box = this.svg.getBoundingClientRect();
      const scale = this.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      const distances = this.points.map((p) => Math.hypot(p.x - x, p.y - y));
      const least = Math.min(...distances);
      return least < 40 ? distances.indexOf(least) : -1;
    };
    this.svg.addEventListener("pointermove", (event) => pinned || show(nearest(event)));
    this.svg.addEventListener("pointerleave", () => pinned || show(-1));
    this.svg.addEventListener("click", (event) => {
      show(nearest(event));
      pinned = at >= 0;
    });
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") {
        pinned = false;
        show(-1);
      }
      if (step === undefined || this.points.length === 0) return;
      event.preventDefault();
      pinned = true;
      show((at + step + this.points.length) % this.points.length);
    });
  }
  /** The programs of the points, above the picture. */
  legend() {
    const used = new Set(this.points.map(({ row }) => row.peer));
    const entries = ownFirst
      .filter((id) => used.has(id))
      .map((id) => {
        const picture = element("svg", { viewBox: "-8 -6 16 12", "aria-hidden": "true" });
        picture.append(mark(id, 5));
        return element("span", { class: isOwn(id) ? "heed" : "" }, picture, ` ${id}`);
      });
    this.svg.before(element("p", { class: "legend" }, ...entries));
  }
}

/** Draws now and whenever the figure's width changes. */
function responsive(figure, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (figure.clientWidth === width || figure.clientWidth === 0) return;
    width = figure.clientWidth;
    draw();
  }).observe(figure);
  return draw;
}

const thousands = (length) => (length % 1024 === 0 ? `${length / 1024}k` : `${length}`);

function drawLength(figure, rows) {
  const plot = new Plot(figure, {
    x: rows.map((row) => row.shape.kv_len),
    y: rows.map((row) => row.ms.median),
    xTitle: "tokens",
    yTitle: "ms",
    xText: thousands,
    xTicks: [...new Set(rows.map((row) => row.shape.kv_len))].sort((a, b) => a - b),
  });
  const series = [...groupBy(rows, (row) => row.peer)];
  for (const [peer, group] of series.sort(([a], [b]) => isOwn(a) - isOwn(b))) {
    const sorted = [...group].sort((a, b) => a.shape.kv_len - b.shape.kv_len);
    const at = sorted.map(
      (row) => `${plot.x(row.shape.kv_len).toFixed(1)} ${plot.y(row.ms.median).toFixed(1)}`,
    );
    plot.path(`M${at.join("L")}`, {
      class: isOwn(peer) ? "line heed" : "line",
      "stroke-dasharray": isOwn(peer) ? "" : DASHES[styleOf(peer)],
    });
    for (const row of sorted) plot.point(row.shape.kv_len, row.ms.median, row);
  }
  plot.legend();
  plot.interactive();
}

function showLength() {
  const figure = document.querySelector("#length figure");
  const unnamed = timed.filter((row) => row.model === undefined);
  const groups = groupBy(
    unnamed,
    (row) => `${problemOf(row, "length")}${row.shape.q_len === row.shape.kv_len ? "" : ", decode"}`,
  );
  for (const [name, rows] of groups) {
    if (new Set(rows.map((row) => row.shape.kv_len)).size < 2) groups.delete(name);
  }
  if (groups.size === 0) return hide("length");
  let shown = [...groups.keys()][0];
  const draw = responsive(figure, () => drawLength(figure, groups.get(shown)));
  choice(document.getElementById("length-controls"), "problem", [...groups.keys()], (name) => {
    shown = name;
    draw();
  });
}

const intensity = (row) => row.flop / row.bytes;

/** Roofs of one thread count, on a GPU of one type: the highest multiply-add rate and the read rate. */
function roofs() {
  const kinds = groupBy(report.probes?.fma ?? [], (peak) => `${peak.threads} ${peak.dtype ?? ""}`);
  return [...kinds.values()].flatMap((peaks) => {
    const [{ threads, dtype }] = peaks;
    const rate = (report.probes.stream ?? []).find((stream) => stream.threads === threads);
    const fits = (row) => row.threads === threads && (dtype ?? row.dtype) === row.dtype;
    const best = peaks.reduce((a, b) => (a.gflops > b.gflops ? a : b));
    return rate && timed.some(fits) ? [{ ...best, gbps: rate.read_gbps }] : [];
  });
}

function drawRoofline(figure, rows, lines) {
  const x = rows.map(intensity);
  const low = Math.min(...x);
  const high = Math.max(...x);
  const plot = new Plot(figure, {
    x,
    y: [
      ...rows.map((row) => row.gflops),
      ...lines.flatMap(({ gflops, gbps }) => [gflops, Math.min(gflops, low * gbps)]),
    ],
    xTitle: "FLOP per byte",
    yTitle: "GFLOP/s",
  });
  for (const [index, { threads, dtype, gflops, gbps }] of lines.entries()) {
    const knee = Math.min(Math.max(gflops / gbps, low), high);
    const at = (value) =>
      `${plot.x(value).toFixed(1)} ${plot.y(Math.min(gflops, value * gbps)).toFixed(1)}`;
    plot.path(`M${at(low)}L${at(knee)}L${at(high)}`, { class: "roof" });
    const text = `${number(gflops)} GFLOP/s, ${number(gbps)} GB/s${dtype ? `, ${dtype}` : threads > 1 ? `, ${threads} threads` : ""}`;
    const above = index === lines.length - 1 ? -6 : 16;
    plot.text(plot.x(high), plot.y(Math.min(gflops, high * gbps)) + above, text, {
      "text-anchor": "end",
    });
  }
  for (const row of rows) plot.point(intensity(row), row.gflops, row);
  plot.legend();
  plot.interactive();
}

function showRoofline() {
  const rows = timed.filter((row) => row.gflops > 0 && row.bytes > 0);
  const lines = roofs();
  if (rows.length === 0 || lines.length === 0) return hide("roofline");
  const figure = document.querySelector("#roofline figure");
  responsive(figure, () => drawRoofline(figure, rows, lines));
}

function showError() {
  const rows = timed.filter((row) => row.gflops > 0 && row.error_bound > 0);
  if (rows.length === 0) return hide("error");
  const figure = document.querySelector("#error figure");
  const part = (row) => Math.max(row.max_error / row.error_bound, 1e-3);
  responsive(figure, () => {
    const plot = new Plot(figure, {
      x: [...rows.map(part), 1],
      y: rows.map((row) => row.gflops),
      xTitle: "error / bound",
      yTitle: "GFLOP/s",
    });
    const at = plot.x(1).toFixed(1);
    plot.path(`M${at} ${MARGIN.top}V${plot.height - MARGIN.bottom}`, { class: "roof" });
    for (const row of rows) plot.point(part(row), row.gflops, row);
    plot.legend();
    plot.interactive();
  });
}

// The table.

function showRows() {
  const memory = (bytes) => (bytes === undefined ? "-" : number(bytes / 2 ** 20));
  const columns = {
    problem: problemOf,
    program: (row) => row.peer,
    ms: (row) => (row.ms ? number(row.ms.median) : row.status),
    p10: (row) => number(row.ms?.p10),
    p90: (row) => number(row.ms?.p90),
    "GFLOP/s": (row) => number(row.gflops),
    "% of peak": (row) => number(row.fraction_of_fma_peak && 100 * row.fraction_of_fma_peak),
    ...(isBackward
      ? { "times forward": (row) => number(row.ms && overForward(row)) }
      : { "GB/s": (row) => number(row.gbps) }),
    "memory, MiB": (row) => memory(row.peak_bytes),
    samples: (row) => row.reps ?? "-",
    error: (row) => number(row.max_error),
    bound: (row) => number(row.error_bound),
  };
  const head = element("tr", {}, ...Object.keys(columns).map((name) => element("th", {}, name)));
  const body = report.rows.map((row) => {
    const cells = Object.values(columns).map((cell) => element("td", {}, `${cell(row)}`));
    const attributes = { class: isOwn(row.peer) ? "heed" : "", title: row.reason ?? "" };
    return element("tr", attributes, ...cells);
  });
  document
    .querySelector("#rows table")
    .append(element("thead", {}, head), element("tbody", {}, ...body));
}

showContext();
showBars();
showLength();
showRoofline();
showError();
showRows();
