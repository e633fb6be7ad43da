// npm run bench:web as a smoke test: every program that runs in Node computes what the reference does.
import { describe, expect, it } from "vitest";
import { nodeEnvironment } from "../../web_bench/node_environment.mjs";
import { readOptions } from "../../web_bench/options.mjs";
import { peers, selectPeers } from "../../web_bench/peers/index.mjs";
import { attentionMaxError, badRows, makeReport, textTable } from "../../web_bench/report.mjs";
import { runBenchmark } from "../../web_bench/run.mjs";

interface Row {
  peer: string;
  status: string;
  case: string;
  reason?: string;
  max_error: number;
  error_bound: number;
  ms: { median: number };
}

async function run(...line: string[]) {
  const { run: options } = readOptions(["--quick", ...line]);
  const given = { ...options, threads: 1, maxError: attentionMaxError() };
  const result = await runBenchmark(given, nodeEnvironment(1));
  return { rows: result.rows as Row[], options: given, result };
}

describe("the web benchmark", () => {
  it("finds every program right, and times it", async () => {
    const { rows, options, result } = await run();
    for (const row of rows) {
      const text = `${row.peer} on ${row.case}: ${row.reason ?? ""}`;
      expect(["timed", "refused"], text).toContain(row.status);
      if (row.status !== "timed") continue;
      expect(row.max_error, text).toBeLessThanOrEqual(row.error_bound);
      expect(row.ms.median, text).toBeGreaterThan(0);
    }
    const timed = new Set(rows.filter(({ status }) => status === "timed").map(({ peer }) => peer));
    const relaxed = result.simd === "relaxed" ? [] : ["heed_plain"];
    expect([...timed, ...relaxed].sort()).toEqual(peers.map(({ id }) => id).sort());
    const parts = [{ place: "node", engine: "Node", threads: 1, starts: [], result }];
    const report = makeReport({ command: "bench:web", options, parts });
    expect(badRows(report)).toEqual([]);
    expect(textTable(report).split("\n").length).toBeGreaterThan(rows.length);
  });

  it("gives no speed to what is outside its bound", async () => {
    const { run: options } = readOptions(["--quick", "--groups", "forward", "--peers", "plain_js"]);
    const strict = { ...options, threads: 1, maxError: 1e-12 };
    const { rows } = await runBenchmark(strict, nodeEnvironment(1));
    expect(rows.map(({ status }: Row) => status)).toEqual(["wrong"]);
    expect(rows[0].ms).toBeUndefined();
    expect(badRows({ rows })).toHaveLength(1);
  });

  it("goes on when a program fails", async () => {
    const environment = {
      ...nodeEnvironment(1),
      onnxWeb: () => Promise.reject(new Error("not today")),
    };
    const ids = "onnxruntime_web_products,plain_js";
    const { run: options } = readOptions(["--quick", "--groups", "forward", "--peers", ids]);
    const given = { ...options, threads: 1, maxError: attentionMaxError() };
    const { rows } = await runBenchmark(given, environment);
    expect(rows.map(({ status }: Row) => status)).toEqual(["failed", "timed"]);
    expect(rows[0].reason).toContain("not today");
  });

  it("runs native libraries in Node only", () => {
    const ids = selectPeers(undefined, "chromium").map(({ id }: { id: string }) => id);
    expect(ids.some((id: string) => id.startsWith("onnxruntime_node"))).toBe(false);
    expect(() => selectPeers(["nobody"], "node")).toThrow('"nobody"');
  });
});
