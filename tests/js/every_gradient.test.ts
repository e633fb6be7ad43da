// heed/gradients: the gradient of every row of the list, against central differences of the float64
// oracle along a random direction through all inputs at once.
import { type Heed, load, type Mechanism } from "heed/gradients";
import { beforeAll, describe, expect, it } from "vitest";
import { drawExample, type Example } from "../../web/src/lib/example.js";
import { random } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

type Inputs = Record<
  string,
  { data: Float64Array | Example["inputs"][string]["data"]; shape: number[] }
>;

const STEP = 1e-6;
/** Of the size of the direction and the gradient: float32 forward and backward, float64 differences. */
const BOUND = 2e-4;

function draws(length: number, seed: number): Float64Array {
  const next = random(seed);
  return Float64Array.from({ length }, () => 2 * next() - 1);
}

const dot = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.prototype.reduce.call(
    a,
    (sum: unknown, x: unknown, i) => (sum as number) + (x as number) * (b[i] as number),
    0,
  ) as number;

/** sum(gradOutput * output) of the oracle, `step` along the directions. */
async function lossAt(
  { id }: Mechanism,
  { inputs, params }: Example,
  directions: Readonly<Record<string, Float64Array>>,
  step: number,
  gradOutput: Float64Array,
): Promise<number> {
  const moved: Inputs = { ...inputs };
  for (const [name, direction] of Object.entries(directions)) {
    const { data, shape } = inputs[name] as Example["inputs"][string];
    moved[name] = {
      data: Float64Array.from(data, (x, i) => x + step * (direction[i] as number)),
      shape,
    };
  }
  const { output } = await heed.reference(id, moved, params);
  return dot(output.data, gradOutput);
}

async function errorOf(mechanism: Mechanism, example: Example): Promise<number> {
  const vjp = heed.run.vjp(mechanism.id, example.inputs, example.params);
  const gradOutput = draws(vjp.output.data.length, 3);
  const gradients = vjp.backward({ data: Float32Array.from(gradOutput), shape: vjp.output.shape });
  vjp.dispose();
  const directions: Record<string, Float64Array> = {};
  let expected = 0;
  let size = 0;
  for (const [name, gradient] of Object.entries(gradients)) {
    const { data } = gradient as { data: Float32Array };
    const direction = draws(data.length, 5 + size);
    directions[name] = direction;
    expected += dot(direction, data);
    size += Math.sqrt(dot(direction, direction) * dot(data, data));
  }
  const rounded = Float64Array.from(Float32Array.from(gradOutput));
  const above = await lossAt(mechanism, example, directions, STEP, rounded);
  const below = await lossAt(mechanism, example, directions, -STEP, rounded);
  return Math.abs((above - below) / (2 * STEP) - expected) / Math.max(size, 1e-3);
}

describe("heed/gradients", () => {
  it("has the gradient of every row", async () => {
    const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
    for (const mechanism of heed.mechanisms) {
      expect(mechanism.capabilities).toContain("gradient");
      const example = drawExample(mechanism, parameters);
      expect(await errorOf(mechanism, example), mechanism.id).toBeLessThan(BOUND);
    }
  });

  it("says what it is", () => {
    expect(heed.build).toBe("gradients");
  });
});
