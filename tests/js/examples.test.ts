// Every row of the list can be drawn, run and compared with the oracle from the registry alone: what
// the gallery does for a visitor.
import { type Heed, load } from "heed";
import { beforeAll, expect, it } from "vitest";
import { drawExample, type ExampleParams, runExample } from "../../web/src/lib/example.js";

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
    const example = drawExample(mechanism, parameters);
    for (const name of mechanism.params) {
      const { type, range } = parameters.get(name) ?? { type: "", range: "" };
      const values: ExampleParams[string][] =
        type === "word" || type === "choice" ? range.split("|") : type === "bool" ? [true] : [];
      for (const value of values) {
        let result: ReturnType<typeof runExample>;
        try {
          result = runExample(heed, mechanism, example, { [name]: value });
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
