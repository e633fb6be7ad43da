// Draws time against length (heed-bench --curves) as an SVG for docs/performance.md: every curve in
// grey, a few labelled ones in colour, exact attention in black. Both axes are logarithmic.

const WIDTH = 760;
const HEIGHT = 440;
const MARGIN = { left: 64, right: 168, top: 24, bottom: 48 };
// Okabe-Ito hues that read on white and on black; exact attention takes the text's colour.
const COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00"];
const STYLE = `
  text { font: 13px system-ui, sans-serif; fill: #444; }
  .title { font-weight: 600; fill: #111; }
  .grid { stroke: #ddd; }
  .other { stroke: #bbb; }
  .exact { stroke: #111; }
  @media (prefers-color-scheme: dark) {
    text { fill: #bbb; }
    .title { fill: #eee; }
    .grid { stroke: #333; }
    .other { stroke: #555; }
    .exact { stroke: #eee; }
  }`;

const escapeXml = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** A map of a logarithmic axis from values to pixels. */
function logScale(values, from, to) {
  const [low, high] = [Math.log(Math.min(...values)), Math.log(Math.max(...values))];
  return (value) => from + ((Math.log(value) - low) / (high - low)) * (to - from);
}

/** Powers of ten within the values. */
function decades(values) {
  const ticks = [];
  const most = Math.max(...values);
  for (let tick = 10 ** Math.ceil(Math.log10(Math.min(...values))); tick <= most; tick *= 10) {
    ticks.push(tick);
  }
  return ticks;
}

/** Moves labels apart until none overlaps its neighbour. */
function spread(labels) {
  const sorted = [...labels].sort((a, b) => a.y - b.y);
  for (let n = 1; n < sorted.length; n++) {
    sorted[n].y = Math.max(sorted[n].y, sorted[n - 1].y + 16);
  }
  return sorted;
}

/**
 * @param result the JSON of `heed-bench --curves`
 * @param highlighted ids drawn in colour, with their names; exact attention always is
 */
export function curvePlot(result, highlighted) {
  const curves = result.curves.filter(({ points }) => points.length > 1);
  const points = curves.flatMap((curve) => curve.points);
  const lengths = points.map(({ length }) => length);
  const times = points.map(({ ms }) => ms.median);
  const x = logScale(lengths, MARGIN.left, WIDTH - MARGIN.right);
  const y = logScale(times, HEIGHT - MARGIN.bottom, MARGIN.top);
  const parts = [];
  for (const tick of [...new Set(lengths)]) {
    const label = tick >= 1024 ? `${tick / 1024}k` : `${tick}`;
    parts.push(
      `<text x="${x(tick).toFixed(1)}" y="${HEIGHT - 26}" text-anchor="middle">${label}</text>`,
    );
  }
  for (const tick of decades(times)) {
    const at = y(tick).toFixed(1);
    const label = tick >= 1000 ? `${tick / 1000} s` : `${Number(tick.toPrecision(1))} ms`;
    parts.push(
      `<line class="grid" x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${at}" y2="${at}"/>`,
      `<text x="${MARGIN.left - 8}" y="${at}" dy="0.35em" text-anchor="end">${label}</text>`,
    );
  }
  const path = (curve) =>
    curve.points
      .map((p, n) => `${n ? "L" : "M"}${x(p.length).toFixed(1)} ${y(p.ms.median).toFixed(1)}`)
      .join("");
  const isExact = ({ mechanism }) => mechanism === "scaled_dot_product";
  const labels = [];
  const rank = (curve) => (isExact(curve) ? 2 : highlighted.includes(curve.mechanism) ? 1 : 0);
  for (const curve of [...curves].sort((a, b) => rank(a) - rank(b))) {
    const place = highlighted.indexOf(curve.mechanism);
    const colour = COLOURS[place % COLOURS.length];
    const look = isExact(curve)
      ? 'class="exact" stroke-width="2.5"'
      : place >= 0
        ? `stroke="${colour}" stroke-width="2"`
        : 'class="other" stroke-width="1"';
    parts.push(
      `<path d="${path(curve)}" fill="none" ${look}><title>${escapeXml(curve.mechanism)}</title></path>`,
    );
    const last = curve.points.at(-1);
    if (rank(curve) > 0) {
      labels.push({
        x: x(last.length) + 8,
        y: y(last.ms.median),
        text: isExact(curve) ? "exact attention" : curve.mechanism,
        colour,
      });
    }
  }
  for (const label of spread(labels)) {
    const fill = label.colour ? ` style="fill: ${label.colour}"` : "";
    parts.push(
      `<text x="${label.x.toFixed(1)}" y="${label.y.toFixed(1)}" dy="0.35em"${fill}>${escapeXml(label.text)}</text>`,
    );
  }
  const title = "Time of one call against the number of tokens";
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title}">
<style>${STYLE}
</style>
<text class="title" x="${MARGIN.left}" y="14">${title}</text>
${parts.join("\n")}
<text x="${(MARGIN.left + WIDTH - MARGIN.right) / 2}" y="${HEIGHT - 6}" text-anchor="middle">tokens</text>
</svg>
`;
}
