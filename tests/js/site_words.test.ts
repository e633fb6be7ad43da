// Sentences of the site that follow from numbers: how quiet a race was, and which programs a run has.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { namedPeers } from "../../web/src/benchmarks/peer_words.js";
import { registrySentence } from "../../web/src/lib/messages.js";
import { noiseSentence } from "../../web/src/race/results.js";
import type { RaceRow } from "../../web/src/race/run.js";
import { root } from "./support.js";

const timed = (p10: number, p90: number) =>
  ({ status: "timed", ms: { median: 100, p10, p90, min: p10 } }) as RaceRow;

describe("registrySentence", () => {
  it("has the apostrophes of print, which the list of mechanisms has not", () => {
    expect(registrySentence("absent means the mechanism's own.")).toBe(
      "absent means the mechanism’s own.",
    );
  });
});

describe("noiseSentence", () => {
  const quiet = timed(90, 115);
  const noisy = timed(88, 114);

  it("says what is tested: how wide the middle 80 % are, not how far from the median", () => {
    expect(noiseSentence([quiet], false)).toBe(
      "Quiet: in all 1 measurements the middle 80 % of the samples spread over at most 25 % of the median.",
    );
    expect(noiseSentence([quiet, noisy], false)).toMatch(
      /^Noisy: in 1 of 2 measurements the middle 80 % of the samples spread over more than 25 % of the median\. /,
    );
  });
});

describe("namedPeers", () => {
  it("names those that are there, and no others", () => {
    expect(namedPeers(["heed", "cudnn"]).map(({ peer }) => peer)).toEqual(["cudnn"]);
    expect(namedPeers(["torch_flash", "ort_mha"])).toEqual([
      { peer: "torch_flash", words: "is PyTorch’s" },
      { peer: "ort_mha", words: "is one call of ONNX Runtime" },
    ]);
  });

  it("has words for every program of the committed runs", () => {
    const folder = join(root, "native_bench/results");
    const results = readdirSync(folder)
      .filter((name) => name.endsWith(".json"))
      .map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")))
      .filter(({ schema }) => schema === "heed-bench");
    const all = results.flatMap(({ rows }) => rows.map(({ peer }: { peer: string }) => peer));
    const peers = [...new Set<string>(all)].filter((peer) => peer !== "heed");
    expect(peers.length).toBeGreaterThan(4);
    expect(namedPeers(peers).map(({ peer }) => peer)).toEqual(peers);
  });
});
