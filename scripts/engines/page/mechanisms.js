// One variant of the package against its float64 reference, over all mechanisms that take q, k and v alone.
import { load } from "../package/browser.js";

const SHAPE = [1, 2, 33, 16];
/** What heed documents for attention, ten times as much for mechanisms that sum states or features. */
const MOST_DIFFERENCE = 2e-5;

function drawn(seed) {
  let state = seed;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  };
  return {
    data: Float32Array.from({ length: SHAPE.reduce((a, b) => a * b) }, next),
    shape: SHAPE,
  };
}

const isPlain = ({ inputs }) =>
  inputs.every(({ name, optional }) => optional || ["q", "k", "v"].includes(name)) &&
  ["q", "k", "v"].every((wanted) => inputs.some(({ name }) => name === wanted));

// Relative to the largest value; NaN counts as infinite.
function difference(output, wanted) {
  const scale = Math.max(1, ...wanted.data.map(Math.abs));
  const each = output.data.map((value, i) => Math.abs(value - wanted.data[i]) / scale);
  return each.reduce((most, value) => (value <= most ? most : value), 0);
}

async function compare(heed, id, inputs) {
  let output;
  try {
    ({ output } = heed.run(id, inputs, {}));
  } catch (error) {
    // Those that have a parameter without a default, or want other shapes.
    if (["option", "shape", "unsupported"].includes(error.code)) return { id, refused: true };
    throw error;
  }
  const wanted = await heed.reference(id, inputs, {});
  return { id, difference: difference(output, wanted.output) };
}

/** `options` are those of load(). */
export async function checkVariant(options) {
  const heed = await load(options);
  const inputs = { q: drawn(1), k: drawn(2), v: drawn(3) };
  const rows = [];
  for (const row of heed.mechanisms.filter(isPlain)) {
    rows.push(await compare(heed, row.id, inputs));
  }
  const compared = rows.filter(({ refused }) => !refused);
  const worst = compared.reduce((a, b) => (b.difference <= a.difference ? a : b));
  const { variant, threads, reasons } = heed;
  const isRight = worst.difference <= MOST_DIFFERENCE;
  return { variant, threads, reasons, compared: compared.length, worst, isRight };
}
