// Every row of the list refuses what cannot be right with an error that names it, and gives the same
// result afterwards.
import { type Heed, load, type Mechanism } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { drawExample, type Example } from "../../web/src/lib/example.js";
import { expectClose, expectError } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

type Inputs = Record<string, unknown>;
type Params = Record<string, unknown>;

const run = (id: string, inputs: Inputs, params: Params) =>
  (heed.run as (...args: unknown[]) => { output: { data: ArrayLike<number> } })(id, inputs, params);

/** Calls `work` with an example of every row; the row gives the same numbers after it. */
function forEachRow(work: (mechanism: Mechanism, example: Example) => void): void {
  const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
  expect(heed.mechanisms.length).toBeGreaterThan(30);
  for (const mechanism of heed.mechanisms) {
    const example = drawExample(mechanism, parameters);
    const call = () => run(mechanism.id, example.inputs, example.params).output.data;
    const before = call();
    work(mechanism, example);
    expectClose(mechanism.id, call(), before, 0);
  }
}

describe("every mechanism", () => {
  it("names an input that is missing", () => {
    forEachRow(({ id, inputs }, example) => {
      for (const { name, optional } of inputs) {
        if (optional) continue;
        const { [name]: _, ...rest } = example.inputs;
        expectError("option", [name], () => run(id, rest, example.params));
      }
    });
  });

  it("names inputs and parameters that it does not know", () => {
    forEachRow(({ id }, { inputs, params }) => {
      const mask = { data: new Float32Array(1), shape: [1] };
      expectError("option", ["frobnicate"], () => run(id, { ...inputs, frobnicate: mask }, params));
      expectError("option", ["frobnicate"], () => run(id, inputs, { ...params, frobnicate: 1 }));
    });
  });

  it("names an input that is no tensor", () => {
    forEachRow(({ id }, { inputs, params }) => {
      for (const name of Object.keys(inputs)) {
        for (const bad of [null, "tensor", {}, { data: [1, 2], shape: "2" }]) {
          let message = "";
          try {
            run(id, { ...inputs, [name]: bad }, params);
          } catch (error) {
            message = String((error as Error).message);
          }
          expect(message, `${id} ${name}`).toContain(name);
        }
      }
    });
  });

  it("names numbers that are none, and words that it does not know", () => {
    const rows = new Map(heed.parameters.map((row) => [row.name, row]));
    forEachRow(({ id, params: names }, { inputs, params }) => {
      for (const name of names) {
        const { type = "", range = "" } = rows.get(name) ?? {};
        const numeric = ["number", "numbers", "count", "integers", "offset", "seed"].includes(type);
        for (const value of numeric ? [Number.NaN, Number.POSITIVE_INFINITY] : []) {
          // Grouped options are shown as they are written: window.left, dropout.p.
          const grouped = /^(window|dropout)(Left|Right|P|Seed)$/;
          const shown = name.replace(grouped, (_, group, part) => `${group}.${part.toLowerCase()}`);
          expectError("range", [shown], () => run(id, inputs, { ...params, [name]: value }));
        }
        if (type !== "word" && type !== "choice") continue;
        const words = [name, "nonsense", ...range.split("|")];
        expectError("option", words, () => run(id, inputs, { ...params, [name]: "nonsense" }));
      }
    });
  });
});
