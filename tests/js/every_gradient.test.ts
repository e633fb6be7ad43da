// heed/gradients: the gradient of every row of the list, input by input, against central differences of
// the float64 oracle along a random direction.
import { type Heed, load, type Mechanism } from "heed/gradients";
import { beforeAll, describe, expect, it } from "vitest";
import { drawExample, type Example } from "../../web/src/lib/example.js";
import { type Data, random, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const STEP = 1e-6;
/** Of the lengths of direction and gradient: float32 forward and backward, float64 differences. */
const BOUND = 2e-4;

type Numbers = Float64Array | Example["inputs"][string]["data"];
type Inputs = Readonly<Record<string, { data: Numbers; shape: number[] }>>;
interface Call {
  id: string;
  inputs: Inputs;
  params: Example["params"];
}
/** What a vjp gives, and what arrives at its output. */
interface Way {
  gradients: Readonly<Record<string, { data: Float32Array }>>;
  gradOutput: Float64Array;
}

const draws = (length: number, seed: number): Float64Array => {
  const next = random(seed);
  return Float64Array.from({ length }, () => Math.fround(2 * next() - 1));
};

function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

/** sum(gradOutput * output) of the oracle, with one input `step` along a direction. */
async function lossAt(
  { id, inputs, params }: Call,
  name: string,
  direction: Float64Array,
  step: number,
  gradOutput: Float64Array,
): Promise<number> {
  const { data, shape } = inputs[name] as Inputs[string];
  const along = Float64Array.from(data, (x, i) => x + step * (direction[i] as number));
  const { output } = await heed.reference(
    id,
    { ...inputs, [name]: { data: along, shape } },
    params,
  );
  return dot(output.data, gradOutput);
}

async function expectGradients(call: Call, { gradients, gradOutput }: Way): Promise<void> {
  for (const [name, { data }] of Object.entries(gradients)) {
    const direction = draws(data.length, 5 + name.length);
    const above = await lossAt(call, name, direction, STEP, gradOutput);
    const below = await lossAt(call, name, direction, -STEP, gradOutput);
    const size = Math.sqrt(dot(direction, direction) * dot(data, data));
    const error = Math.abs((above - below) / (2 * STEP) - dot(direction, data));
    expect(error / Math.max(size, 1e-2), `${call.id}: ${name}`).toBeLessThan(BOUND);
  }
}

/** Floats without a gradient: they steer a choice (docs/gradients.md), or say where things are. */
const STEERS: Readonly<Record<string, readonly string[]>> = {
  indexed: ["indexQ", "indexK", "indexWeights"],
  routing: ["centroids"],
  reformer: ["rotations"],
};

const floatsOf = ({ id, inputs }: Mechanism, example: Example): string[] =>
  inputs
    .filter(({ name, kind }) => kind === "float" && name in example.inputs)
    .map(({ name }) => name)
    .filter((name) => !STEERS[id]?.includes(name));

describe("heed/gradients", () => {
  it("says what it is", () => {
    expect(heed.build).toBe("gradients");
  });

  it("has the gradient of every input of floats of every row", async () => {
    const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
    for (const mechanism of heed.mechanisms) {
      const { id } = mechanism;
      const example = drawExample(mechanism, parameters);
      const vjp = heed.run.vjp(id, example.inputs, example.params);
      const gradOutput = draws(vjp.output.data.length, 3);
      const way = { data: Float32Array.from(gradOutput), shape: vjp.output.shape };
      const gradients = vjp.backward(way) as Way["gradients"];
      vjp.dispose();
      expect(Object.keys(gradients).sort(), id).toEqual(floatsOf(mechanism, example).sort());
      await expectGradients({ id, ...example }, { gradients, gradOutput });
    }
  });

  it("has those of the options that heed leaves out", async () => {
    const [q, k, v] = [1, 2, 3].map((seed) => randomData([2, 4, 5, 3], seed)) as [Data, Data, Data];
    const tables = {
      relativeKeys: randomData([5, 3], 4),
      relativeValues: randomData([5, 3], 5),
    };
    const calls: [Record<string, Data>, Example["params"]][] = [
      [tables, { queryOffset: 1 }],
      [{ contentBias: randomData([4, 3], 6) }, {}],
      [
        {
          queryWeight: randomData([6, 3], 7),
          keyWeight: randomData([6, 3], 8),
          scoreBias: randomData([6], 9),
          scoreVector: randomData([6], 10),
        },
        { score: "additive" },
      ],
      [{ copeTable: randomData([6, 3], 11) }, { normalize: "cope" }],
      [{}, { scoreMod: "tanh(score) + 0.1 * score * score", causal: true }],
      [{}, { probMod: "2 * prob * prob - 0.1 * prob * h" }],
      [{}, { probMod: "sqrt(prob)", normalize: "sparsemax" }],
      ...["boxcar", "triangular", "epanechnikov", "constant"].map(
        (kernel): [Record<string, Data>, Example["params"]] => [
          {},
          { score: "squared_distance", normalize: "kernel_sum", kernel, width: 4 },
        ],
      ),
    ];
    for (const [inputs, params] of calls) {
      const vjp = heed.attention.vjp(q, k, v, { ...inputs, ...params });
      const gradOutput = draws(vjp.output.data.length, 12);
      const shape = vjp.output.shape;
      const gradients = vjp.backward({ data: Float32Array.from(gradOutput), shape });
      vjp.dispose();
      expect(Object.keys(gradients).sort()).toEqual(["q", "k", "v", ...Object.keys(inputs)].sort());
      await expectGradients(
        { id: "attention", inputs: { q, k, v, ...inputs }, params },
        { gradients: gradients as unknown as Way["gradients"], gradOutput },
      );
    }
  });

  it("goes through the functions and normalisers inside of other rows", async () => {
    const [q, k, v] = [1, 2, 3].map((seed) => randomData([2, 4, 5, 3], seed)) as [Data, Data, Data];
    const outputGate = randomData([2, 4, 5, 3], 4);
    const copeTable = randomData([6, 3], 5);
    const calls: [string, Record<string, Data>, Example["params"]][] = [
      ["gated", { q, k, v, outputGate }, { scoreMod: "tanh(score)", probMod: "prob * prob" }],
      ["hopfield", { q, k, v, copeTable }, { normalize: "cope", steps: 2 }],
      ["linear", { q, k, v }, { featureMod: "isKey ? exp(x / 2) : 1 / (1 + x * x)", causal: true }],
    ];
    for (const [id, inputs, params] of calls) {
      const vjp = heed.run.vjp(id, inputs, params);
      const gradOutput = draws(vjp.output.data.length, 12);
      const way = { data: Float32Array.from(gradOutput), shape: vjp.output.shape };
      const gradients = vjp.backward(way) as Way["gradients"];
      vjp.dispose();
      expect(Object.keys(gradients).sort(), id).toEqual(Object.keys(inputs).sort());
      await expectGradients({ id, inputs, params }, { gradients, gradOutput });
    }
  });
});
