// What expressions cost beside the built-in options that say the same: interleaved medians, on the
// built package.
// node scripts/user_function_cost.mjs [--filter linear] [--length 1024] [--rounds 15] [--threads 1]
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    filter: { type: "string", default: "" },
    length: { type: "string", default: "1024" },
    heads: { type: "string", default: "4" },
    rounds: { type: "string", default: "15" },
    threads: { type: "string", default: "1" },
    simd: { type: "string", default: "plain" },
  },
});
const [length, heads, rounds, threads] = ["length", "heads", "rounds", "threads"].map((name) => {
  const value = Number(values[name]);
  if (!Number.isInteger(value) || value < 1) throw new Error(`--${name}: a whole number >= 1`);
  return value;
});

const { alibiSlopes, load } = await import("../dist/node.js");
const heed = await load({ threads, simd: values.simd });

const HEAD_DIM = 64;
const random = (count) => Float32Array.from({ length: count }, () => Math.random() * 2 - 1);
const draw = () => heed.tensor(random(heads * length * HEAD_DIM), [1, heads, length, HEAD_DIM]);
const [q, k, v] = [draw(), draw(), draw()];
const slope = alibiSlopes(heads);
const bias = heed.tensor(random(length * length), [1, 1, length, length]);

/** Pairs of options that compute the same, and what stands alone. */
const ALL = [
  { name: "nothing", built: {}, user: { scoreMod: "score" } },
  { name: "nothing, to weights", built: {}, user: { probMod: "prob" } },
  { name: "causal", built: { causal: true }, user: { keepMod: "kvIndex <= position" } },
  {
    name: "ALiBi",
    built: { alibiSlopes: slope },
    user: { scoreMod: "score - slope[h] * abs(position - kvIndex)", captured: { slope } },
  },
  { name: "softcap", built: { softcap: 20 }, user: { scoreMod: "20 * tanh(score / 20)" } },
  {
    name: "bias",
    built: { bias },
    user: { scoreMod: "score + bias[0, 0, qIndex, kvIndex]", captured: { bias } },
  },
  {
    name: "ALiBi and causal",
    built: { alibiSlopes: slope, causal: true },
    user: {
      causal: true,
      scoreMod: "score - slope[h] * (position - kvIndex)",
      captured: { slope },
    },
  },
  {
    name: "linear: ReLU",
    id: "linear",
    built: { featureMap: "relu" },
    user: { featureMod: "max(x, 0)" },
  },
  {
    name: "linear: ELU + 1",
    id: "linear",
    built: { featureMap: "elu_plus_one" },
    user: { featureMod: "x > 0 ? x + 1 : exp(x)" },
  },
  {
    name: "linear: ELU + 1, causal",
    id: "linear",
    built: { featureMap: "elu_plus_one", causal: true },
    user: { featureMod: "x > 0 ? x + 1 : exp(x)", causal: true },
  },
];

const CASES = ALL.filter(({ name }) => name.includes(values.filter));
if (CASES.length === 0) throw new Error(`--filter: no rule has "${values.filter}" in its name`);

function time(id, options) {
  const begin = performance.now();
  const { output } =
    id === undefined ? heed.attention(q, k, v, options) : heed.run(id, { q, k, v }, options);
  const spent = performance.now() - begin;
  const data = output.data.slice();
  output.dispose();
  return { spent, data };
}

const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

const times = CASES.map(() => ({ built: [], user: [] }));
for (let round = -1; round < rounds; round++) {
  CASES.forEach((pair, n) => {
    const built = time(pair.id, pair.built);
    const user = time(pair.id, pair.user);
    const worst = built.data.reduce((most, x, i) => Math.max(most, Math.abs(x - user.data[i])), 0);
    if (!(worst < 1e-4)) throw new Error(`${pair.name}: the two differ by ${worst}`);
    if (round < 0) return; // warm-up
    times[n].built.push(built.spent);
    times[n].user.push(user.spent);
  });
}

console.log(
  `heed ${heed.version} ${heed.variant}, ${heed.threads} thread, Node ${process.versions.node}: ` +
    `${heads} heads, length ${length}, head_dim ${HEAD_DIM}, medians of ${rounds} interleaved rounds`,
);
console.log("| rule | built in, ms | expression, ms | ratio |\n|---|---:|---:|---:|");
CASES.forEach(({ name }, n) => {
  const [built, user] = [median(times[n].built), median(times[n].user)];
  const cells = [name, built.toFixed(1), user.toFixed(1), `${(user / built).toFixed(2)}x`];
  console.log(`| ${cells.join(" | ")} |`);
});
heed.dispose();
