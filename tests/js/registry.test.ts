import { load } from "heed";
import { expect, it } from "vitest";
import { expectError, randomData } from "./support.js";

const x = randomData([1, 2, 9, 8], 1);
const names = ({ mechanisms, parameters }: Awaited<ReturnType<typeof load>>) => ({
  mechanisms: mechanisms.map(({ id }) => id),
  parameters: parameters.map(({ name }) => name),
});

it("lists the same rows in the same order whatever was called before", async () => {
  const fresh = await load({ threads: 1 });
  const used = await load({ threads: 1 });
  used.run("retention", { q: x, k: x, v: x });
  used.run("sigmoid", { q: x, k: x, v: x }, { causal: true, queryOffset: 0 });
  expect(names(used)).toEqual(names(fresh));
  expect(used.mechanisms).toEqual(fresh.mechanisms);
  expect(used.parameters).toEqual(fresh.parameters);
  expect(used.mechanisms).toBe(used.mechanisms);
});

it("knows no mechanism by two names or by none", async () => {
  const heed = await load({ threads: 1 });
  for (const id of ["", "sigmoid retention", " sigmoid", "sigmoid "]) {
    expectError("option", ["unknown mechanism"], () => heed.run(id, { q: x, k: x, v: x }));
  }
});

it("lists its rows after the instance was disposed of", async () => {
  const heed = await load({ threads: 1 });
  const other = await load({ threads: 1 });
  heed.dispose();
  expect(names(heed)).toEqual(names(other));
});
