// Every row of the list can be drawn, run and compared with the oracle from the registry alone: what
// the gallery does for a visitor.
import { type Heed, load, type Mechanism, type Parameter } from "heed";
import { beforeAll, expect, it } from "vitest";
import { controlsOf, currentValue, readTyped } from "../../web/src/lib/controls.js";
import {
  drawExample,
  EXAMPLE_SEED,
  type ExampleParams,
  runExample,
} from "../../web/src/lib/example.js";
import { givenParams } from "../../web/src/lib/snippets.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const BOUND = 2e-5;

it("every mechanism agrees with the oracle on a drawn example, for several seeds", async () => {
  const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
  expect(heed.mechanisms.length).toBeGreaterThan(30);
  for (const mechanism of heed.mechanisms) {
    for (const seed of [7, 8, 9]) {
      const example = drawExample(mechanism, parameters, seed);
      const { error, outputShape } = runExample(heed, mechanism, example, {});
      expect(outputShape.length, mechanism.id).toBeGreaterThan(0);
      expect(await error, `${mechanism.id}, seed ${seed}`).toBeLessThan(BOUND);
    }
  }
});

it("every word and switch of every mechanism runs or is refused with a reason", async () => {
  const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
  for (const mechanism of heed.mechanisms) {
    for (const name of mechanism.params) {
      const { type, range } = parameters.get(name) ?? { type: "", range: "" };
      const values: ExampleParams[string][] =
        type === "word" || type === "choice" ? range.split("|") : type === "bool" ? [true] : [];
      for (const value of values) {
        let result: ReturnType<typeof runExample>;
        try {
          const changes = { [name]: value };
          const drawn = drawExample(mechanism, parameters, EXAMPLE_SEED, changes);
          result = runExample(heed, mechanism, drawn, changes);
        } catch (error) {
          // A refusal names what it is about and leaves the instance usable.
          expect((error as { code?: string }).code, `${mechanism.id} ${name}=${value}`).toMatch(
            /^(option|unsupported|shape|range)$/,
          );
          continue;
        }
        expect(await result.error, `${mechanism.id} ${name}=${value}`).toBeLessThan(BOUND);
      }
    }
  }
});

const EXPRESSIONS: Readonly<Record<string, string>> = {
  scoreMod: "score * qIndex",
  keepMod: "kvIndex != 3",
  probMod: "prob * qIndex",
  featureMod: "exp(x) + d",
};

/** Other values of a parameter, to see whether any changes the result. */
function others({ type, range, name }: Parameter): ExampleParams[string][] {
  if (type === "bool") return [true];
  if (type === "word" || type === "choice") return range.split("|");
  if (type === "expression") return [EXPRESSIONS[name] ?? "1"];
  return [0, 0.5, 1, 2, 3, 4, 8, 64, [4, 4], [2, 8]];
}

/** Parameters that say something only beside another. */
const TOGETHER: Readonly<Record<string, ExampleParams>> = {
  imageHeight: { imageHeight: 4, imageWidth: 4 },
  imageWidth: { imageHeight: 4, imageWidth: 4 },
  featureMod: { featureMap: "user" },
};

it("every control of every mechanism, and of every word of it, can change the result", () => {
  const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
  const run = (mechanism: Mechanism, changes: ExampleParams): string | undefined => {
    try {
      const example = drawExample(mechanism, parameters, EXAMPLE_SEED, changes);
      const { results } = runExample(heed, mechanism, example, changes);
      return JSON.stringify(Object.values(results).map(({ data }) => Array.from(data)));
    } catch {
      return undefined;
    }
  };
  const idle: string[] = [];
  for (const mechanism of heed.mechanisms) {
    const example = drawExample(mechanism, parameters);
    const situations: ExampleParams[] = [{}];
    for (const { name, type, range } of controlsOf(mechanism, example, {})) {
      if (type === "word") situations.push(...range.split("|").map((word) => ({ [name]: word })));
    }
    for (const situation of situations) {
      const before = run(mechanism, situation);
      if (before === undefined) continue;
      const drawn = drawExample(mechanism, parameters, EXAMPLE_SEED, situation);
      for (const row of controlsOf(mechanism, drawn, situation)) {
        // It changes rounding alone, and a sum over unit vectors has one term.
        if (row.name === "chunkLen" && drawn.sumsValues) continue;
        const acts = others(row).some((value) => {
          const after = run(mechanism, { ...situation, [row.name]: value, ...TOGETHER[row.name] });
          return after !== undefined && after !== before;
        });
        if (!acts) idle.push(`${mechanism.id} ${JSON.stringify(situation)} ${row.name}`);
      }
    }
  }
  expect(idle).toEqual([]);
});

it("the call that a page shows computes what the page shows", () => {
  const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
  for (const mechanism of heed.mechanisms) {
    const { id } = mechanism;
    const example = drawExample(mechanism, parameters);
    const controls = controlsOf(mechanism, example, {});
    const given = givenParams(example, {}, controls);
    const whole = heed.run(id, example.inputs, example.params).output.data;
    expect(heed.run(id, example.inputs, given).output.data, id).toEqual(whole);
  }
});

it("unit vectors as values show what a mechanism does with any values", () => {
  const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
  const shown = heed.mechanisms.filter((row) => drawExample(row, parameters).sumsValues);
  expect(shown.length).toBeGreaterThan(15);
  for (const mechanism of shown) {
    const example = drawExample(mechanism, parameters);
    const { picture } = runExample(heed, mechanism, example, {});
    const { rows, columns } = picture;
    const shape = example.inputs.v?.shape ?? [];
    // The first head's values [len, dim]; the other head's do not matter to it.
    const data = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) =>
      Math.sin(i),
    );
    const inputs = { ...example.inputs, v: { data, shape } };
    const { results } = runExample(heed, mechanism, { ...example, inputs }, {});
    const output = results.output?.data ?? [];
    for (let i = 0; i < rows; i++) {
      for (let d = 0; d < columns; d++) {
        let sum = 0;
        for (let j = 0; j < columns; j++) {
          sum += (picture.values[i * columns + j] ?? 0) * (data[j * columns + d] ?? 0);
        }
        const own = output[i * columns + d] ?? Number.NaN;
        expect(Math.abs(own - sum), `${mechanism.id} ${i} ${d}`).toBeLessThan(
          1e-4 * Math.max(1, Math.abs(sum)),
        );
      }
    }
  }
});

it("patterns leave something out and something in at the sizes of the examples", () => {
  const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
  for (const id of ["block_sparse", "longformer", "bigbird", "swin_window", "neighborhood"]) {
    const mechanism = heed.mechanisms.find((row) => row.id === id) as Mechanism;
    const { picture } = runExample(heed, mechanism, drawExample(mechanism, parameters), {});
    const seen = picture.values.filter((weight) => weight > 0).length;
    expect(seen / picture.values.length, id).toBeLessThan(0.7);
    expect(seen / picture.values.length, id).toBeGreaterThan(0.1);
  }
});

it("what is typed becomes a number, a list, or what heed then refuses", () => {
  expect(readTyped("number", " 2.5 ")).toBe(2.5);
  expect(readTyped("numbers", "4, 4")).toEqual([4, 4]);
  expect(readTyped("number", "\u22121")).toBe(-1);
  expect(readTyped("number", "two")).toBe("two");
  expect(readTyped("number", " ")).toBeUndefined();
  expect(readTyped("expression", "score, 2")).toBe("score, 2");
  const causal = heed.parameters.find(({ name }) => name === "causal");
  expect(currentValue(causal, { inputs: {}, params: {}, note: "" }, {})).toBe("false");
  expect(currentValue(causal, { inputs: {}, params: {}, note: "" }, { causal: true })).toBe(true);
});
