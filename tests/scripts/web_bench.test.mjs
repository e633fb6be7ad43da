// The parts of npm run bench:web that need nothing built: its options, cases, numbers and statistics.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeCases, nameOf } from "../../web_bench/cases.mjs";
import { measureInterleaved, needsAnother, quantile, summarize } from "../../web_bench/measure.mjs";
import { readOptions } from "../../web_bench/options.mjs";
import { measurePeaks, peakModule } from "../../web_bench/peak.mjs";
import { costOf, makeProblem, swapHeads } from "../../web_bench/problem.mjs";
import { attentionMaxError, schemaVersion } from "../../web_bench/report.mjs";
import { boundOf, largestError } from "../../web_bench/verify.mjs";

const names = (options) => makeCases(options).map(nameOf);

test("CasesAreNamedAsHeedBenchNamesThem", () => {
  assert.deepEqual(names({ groups: ["causal"], lengths: [128], threads: 2 }), [
    "scaled_dot_product/h8/d64/l128/causal/t2",
  ]);
  assert.deepEqual(names({ groups: ["decode"], lengths: [4096] }), [
    "scaled_dot_product/h8/d64/l1x4096/full/t1",
    "scaled_dot_product/h8/d64/l1x4096/full/resident/t1",
  ]);
});

test("AFilterKeepsWhatMatches", () => {
  assert.deepEqual(names({ filter: "l1024/causal" }), [
    "scaled_dot_product/h8/d64/l1024/causal/t1",
  ]);
});

test("AnUnknownGroupIsAnError", () => {
  assert.throws(() => makeCases({ groups: ["backward"] }), /--groups: "backward"/);
});

test("QuickKeepsWhatIsGiven", () => {
  const { run, places } = readOptions(["--quick", "--groups", "short", "--places", "node"]);
  assert.deepEqual([run.groups, run.lengths, places], [["short"], [48], ["node"]]);
  assert.equal(run.plan.min_reps, 2);
  assert.equal(readOptions([]).run.plan.min_reps, 10);
});

test("MistakesOnTheLineAreErrors", () => {
  for (const line of [
    ["--places", "moon"],
    ["--threads", "0"],
    ["--lengths", "1.5"],
    ["--reps", ""],
    ["--no-such-flag"],
  ]) {
    assert.throws(() => readOptions(line), line.join(" "));
  }
});

test("QuantilesAreLinearBetweenNeighbours", () => {
  assert.equal(quantile([4, 1, 3, 2], 0.5), 2.5);
  assert.deepEqual(summarize([5]), { median: 5, p10: 5, p90: 5, min: 5 });
});

test("AProgramIsMeasuredUntilBothMinimaOrTheMaximum", () => {
  const plan = { min_reps: 3, min_seconds: 1, max_seconds: 5 };
  assert.equal(needsAnother(plan, 0, 9e9), true);
  assert.equal(needsAnother(plan, 2, 2000), true);
  assert.equal(needsAnother(plan, 9, 900), true);
  assert.equal(needsAnother(plan, 3, 1000), false);
  assert.equal(needsAnother(plan, 1, 5001), false);
});

test("ProgramsTakeTurns", async () => {
  const order = [];
  const candidate = (name) => ({ call: () => order.push(name), warm: 1000 });
  const plan = { min_reps: 3, min_seconds: 0, max_seconds: 1 };
  const results = await measureInterleaved([candidate("a"), candidate("b")], plan);
  assert.equal(order.join(""), "abbaab");
  assert.deepEqual(
    results.map(({ reps }) => reps),
    [3, 3],
  );
});

test("PromisesAreWaitedFor", async () => {
  let done = 0;
  const call = () => new Promise((resolve) => setTimeout(resolve, 2)).then(() => done++);
  const plan = { min_reps: 2, min_seconds: 0, max_seconds: 1 };
  const [{ ms }] = await measureInterleaved([{ call, warm: 1000 }], plan);
  assert.equal(done, 2);
  assert.ok(ms.median >= 1, `${ms.median} ms`);
});

test("AProgramThatIsAloneDoesNotRest", { timeout: 10_000 }, async () => {
  const plan = { min_reps: 3, min_seconds: 0, max_seconds: 1 };
  const hours = 1e7;
  const [{ reps }] = await measureInterleaved([{ call: () => {}, warm: 1000 }], plan, hours);
  assert.equal(reps, 3);
});

test("CostsCountThePairsThatAreSeen", () => {
  const [full] = makeCases({ groups: ["forward"], lengths: [4] });
  const [causal] = makeCases({ groups: ["causal"], lengths: [4] });
  assert.equal(costOf(full).flop, 4 * 8 * 64 * 16);
  assert.equal(costOf(causal).flop, 4 * 8 * 64 * 10);
  assert.equal(costOf(full).bytes, 4 * 8 * 4 * 64 * 4);
});

test("ProblemsAreTheSameInEveryRun", () => {
  const [one] = makeCases({ groups: ["forward"], lengths: [32] });
  const [first, second] = [makeProblem(one, 7), makeProblem(one, 7)];
  assert.deepEqual(first.q, second.q);
  assert.notDeepEqual(first.q.data, first.k.data);
  const { data } = first.v;
  const mean = data.reduce((a, b) => a + b, 0) / data.length;
  const variance = data.reduce((a, b) => a + (b - mean) ** 2, 0) / data.length;
  assert.ok(Math.abs(mean) < 0.05 && Math.abs(variance - 1) < 0.05, `${mean}, ${variance}`);
});

test("HeadsChangePlacesAndBack", () => {
  const data = Float32Array.from({ length: 12 }, (_, n) => n);
  const swapped = swapHeads(data, [1, 2, 3, 2]);
  assert.deepEqual([...swapped], [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
  assert.deepEqual(swapHeads(swapped, [1, 3, 2, 2]), data);
});

test("AMissingNumberIsAnInfiniteError", () => {
  const problem = { shape: { q_len: 1, head_dim_v: 2 } };
  const rows = [{ head: 0, query: 0, values: [1, 2] }];
  assert.equal(largestError([1, 2.5], rows, problem), 0.5);
  assert.equal(largestError([1, NaN], rows, problem), Infinity);
  assert.equal(largestError([1], rows, problem), Infinity);
  assert.equal(boundOf({ v: { data: [1, -3] } }, 2), 6);
});

test("ThePeakIsMeasuredOnRightNumbers", () => {
  for (const kind of ["plain", "relaxed"]) {
    const bytes = peakModule(kind);
    if (!WebAssembly.validate(bytes)) continue;
    const { run } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
    // Chains begin at 1 to 12 and go to n / 2 + 1 / 4, whose fixed point is 1 / 2.
    assert.equal(run(1), 42);
    assert.equal(run(100), 6);
  }
  const [peak] = measurePeaks({ runs: 2, rounds: 100 });
  assert.ok(peak.gflops > 0 && Number.isFinite(peak.gflops));
});

test("ConstantsAreThoseOfTheSources", () => {
  assert.ok(attentionMaxError() > 0 && attentionMaxError() < 1e-3);
  assert.ok(Number.isInteger(schemaVersion()));
});
