// What docs/performance.md says of the speeds that heed aims at.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { standing, targets } from "../../scripts/performance_targets.mjs";
import { root } from "../../scripts/toolchain.mjs";

const unit = (value) => value.toFixed(2);

test("TheWorstRowDecides", () => {
  assert.deepEqual(standing({ least: 0.8, unit }, [0.9, 0.79]), {
    range: "0.79 to 0.90",
    reached: false,
  });
  assert.deepEqual(standing({ least: 0.8, unit }, [0.9, 0.8]).reached, true);
  assert.deepEqual(standing({ most: 1.2, unit }, [1.1, 1.21]).reached, false);
  assert.deepEqual(standing({ most: 1.2, unit }, [1.1]), { range: "1.10", reached: true });
});

test("ARowThatIsMissingIsNoSuccess", () => {
  assert.throws(() => standing({ least: 1, unit }, []), /lacks a row/);
  assert.throws(() => standing({ least: 1, unit }, [2, Number.NaN]), /lacks a row/);
});

const sharedCase = {
  status: "timed",
  threads: 1,
  shape: { mask: "full", q_len: 512, head_dim: 64 },
};

test("StorageTypesAreComparedCaseByCase", () => {
  const row = (dtype, median, suffix = "") => ({
    ...sharedCase,
    peer: "heed",
    case: `scaled_dot_product/h8/d64/l512/full${suffix}/t1`,
    dtype,
    ms: { median },
  });
  const target = targets.find(({ work }) => work.startsWith("bfloat16 over float32"));
  const rows = [row("float32", 3), row("float16", 2, "/float16"), row("bfloat16", 1, "/bfloat16")];
  assert.deepEqual(target.values({ rows }), [3]);
});

test("ATimeThatPyTorchLacksIsNoSuccess", () => {
  const target = targets.find(({ work }) => work.includes("flex attention"));
  const row = (flex) => ({ case: "window/causal/l4096", ms: { median: 2 }, flex });
  assert.deepEqual(target.values({ rows: [row({ ms: { median: 5 } })] }), [2.5]);
  for (const flex of [undefined, {}]) {
    assert.throws(() => standing(target, target.values({ rows: [row(flex)] })), /lacks a row/);
  }
});

test("EveryMissLeadsToASectionOfTheNotes", () => {
  const notes = readFileSync(join(root, "docs/performance_notes.md"), "utf8");
  const anchors = [...notes.matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
    title
      .toLowerCase()
      .replaceAll(/[^a-z0-9_ -]/g, "")
      .replaceAll(" ", "-"),
  );
  for (const { work, why } of targets.filter((target) => target.why)) {
    assert.ok(anchors.includes(why), `${work} leads to #${why}, which is no section`);
  }
});
