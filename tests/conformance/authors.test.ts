import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Heed, load, type RunInputs, type RunParams } from "heed";
import { load as loadGradients } from "heed/gradients";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Tally } from "./tally.js";

// What the authors of the mechanisms compute: numbers that their programs, or other well-known ones,
// gave for small random inputs. docs/conformance.md says how the files came about.

interface Packed {
  shape: number[];
  data: number[];
  type?: "int32" | "bool";
}
type Tensors = Record<string, Packed>;
interface Case {
  name: string;
  inputs: Record<string, Packed | Tensors>;
  params: RunParams;
  expected: Tensors;
  gradient?: { gradOutput: Packed; expected: Tensors };
  tolerance?: number;
}
interface Fixture {
  mechanism: string;
  source: { repository: string; commit: string; file: string; function: string; licence: string };
  how: string;
  precision: "float64" | "float32";
  cases: Case[];
}

const folder = fileURLToPath(new URL("authors/", import.meta.url));
const fixtures = readdirSync(folder)
  .filter((name) => name.endsWith(".json"))
  .sort()
  .map((name) => JSON.parse(readFileSync(folder + name, "utf8")) as Fixture);

let heed: Heed;
let withGradients: Heed;
const tally = new Tally("authors");
beforeAll(async () => {
  [heed, withGradients] = await Promise.all([load({ threads: 1 }), loadGradients({ threads: 1 })]);
});
afterAll(() => tally.finish());

const isPacked = (value: Packed | Tensors): value is Packed => Array.isArray(value.data);

function unpack(value: Packed | Tensors): unknown {
  if (!isPacked(value)) return unpackAll(value);
  const { shape, data, type } = value;
  if (type === "int32") return { shape, data: Int32Array.from(data) };
  if (type === "bool") return { shape, data: Uint8Array.from(data) };
  return { shape, data: Float32Array.from(data) };
}

const unpackAll = (tensors: Record<string, Packed | Tensors>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(tensors).map(([name, value]) => [name, unpack(value)]));

/** Largest difference, in units of the largest expected number. */
function expectNear(what: string, got: unknown, wanted: Packed, tolerance: number): void {
  const { shape, data } = got as { shape: number[]; data: ArrayLike<number> };
  expect(shape, what).toEqual(wanted.shape);
  const size = Math.max(...wanted.data.map(Math.abs));
  wanted.data.forEach((value, i) => {
    const error = Math.abs((data[i] as number) - value);
    expect(error, `${what}[${i}]`).toBeLessThanOrEqual(tolerance * size);
  });
}

function expectAllNear(what: string, got: object, wanted: Tensors, tolerance: number): void {
  for (const [name, value] of Object.entries(wanted)) {
    expectNear(`${what} ${name}`, (got as Record<string, unknown>)[name], value, tolerance);
  }
}

// The reference computes in float64 from inputs that float32 holds exactly; the files hold nine digits.
const referenceTolerance = (fixture: Fixture, tolerance: number): number =>
  fixture.precision === "float64" ? 2e-7 : tolerance;

describe.each(fixtures)("$mechanism as in $source.repository", (fixture) => {
  const { mechanism, source } = fixture;
  const group = `\`${mechanism}\`, ${source.repository}`;

  it.each(fixture.cases)(
    "$name",
    async ({ inputs, params, expected, gradient, tolerance = 1e-5 }) => {
      const passed = tally.announce(group);
      const given = () => unpackAll(inputs) as RunInputs;
      expectAllNear("kernel", heed.run(mechanism, given(), params), expected, tolerance);
      const reference = await heed.reference(mechanism, given(), params);
      expectAllNear("reference", reference, expected, referenceTolerance(fixture, tolerance));
      if (gradient) {
        const { backward, dispose } = withGradients.run.vjp(mechanism, given(), params);
        const gradients = backward(
          unpack(gradient.gradOutput) as { shape: number[]; data: Float32Array },
        );
        expectAllNear("gradient", gradients, gradient.expected, 2 * tolerance);
        dispose();
      }
      passed();
    },
  );
});
