import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { load as loadFull } from "heed";
import { load } from "heed/core";
import { describe, expect, it } from "vitest";
import { load as loadOnWeb } from "../../dist/core.js";
import { expectError, expectRejection, randomData, root } from "./support.js";

const ONE = { threads: 1, simd: "plain" } as const;
const q = randomData([1, 2, 33, 16], 1);
const k = randomData([1, 2, 47, 16], 2);
const v = randomData([1, 2, 47, 8], 3);
const OPTIONS = { causal: true, queryOffset: "end", softcap: 5, returnLse: true } as const;

/** Families that the core build leaves out, as bindings/embind/CMakeLists.txt lists them. */
function fullFamilies(): string[] {
  const list = readFileSync(`${root}bindings/embind/CMakeLists.txt`, "utf8");
  return /set\(full_families ([a-z_ ]+)\)/.exec(list)?.[1]?.split(" ") ?? [];
}

describe("heed/core", () => {
  it("has every row of its families, with the same words, and none of the others", async () => {
    const [core, full] = await Promise.all([load(ONE), loadFull(ONE)]);
    expect([core.build, full.build]).toEqual(["core", "full"]);
    const left = fullFamilies();
    expect(left).toContain("recurrent");
    expect(core.mechanisms).toEqual(full.mechanisms.filter(({ family }) => !left.includes(family)));
    expect(full.mechanisms.length).toBeGreaterThan(core.mechanisms.length);
    expect(core.parameters).toEqual(full.parameters);
  });

  it("attends with the same bits as the whole of heed, in every variant that runs here", async () => {
    for (const options of [ONE, { threads: 2, simd: "plain" }] as const) {
      const [core, full] = await Promise.all([load(options), loadFull(options)]);
      expect(core.variant).toBe(full.variant);
      const [a, b] = [core, full].map((heed) => heed.attention(q, k, v, OPTIONS));
      expect(a?.output.data).toEqual(b?.output.data);
      expect(a?.lse?.data).toEqual(b?.lse?.data);
      core.dispose();
      full.dispose();
    }
  });

  it("runs layers and caches, and compares with the oracle", async () => {
    const heed = await load(ONE);
    const rope = heed.rope(q, { pairing: "half" });
    const oracle = await heed.reference("rope", { x: q }, { pairing: "half" });
    const far = rope.data.map((x, i) => Math.abs(x - (oracle.output.data[i] as number)));
    expect(Math.max(...far)).toBeLessThan(1e-5);
  });

  it("says where a mechanism is that it leaves out", async () => {
    const heed = await load(ONE);
    const message = '"heed/core" is a part, "heed" has every one';
    expectError("option", [message], () => heed.run("retention", { q, k, v }));
    await expectRejection("option", [message], () => heed.reference("retention", { q, k, v }));
    expect(heed.attention(q, k, v).output.shape).toEqual([1, 2, 33, 8]);
  });

  it("asks for files of its own name and refuses those of the whole", async () => {
    const asked: string[] = [];
    const wasmUrl = (name: string) => {
      asked.push(name);
      return pathToFileURL(`${root}dist/wasm/${name}`);
    };
    expect((await load({ ...ONE, wasmUrl })).build).toBe("core");
    expect((await loadOnWeb({ ...ONE, wasmUrl })).build).toBe("core");
    expect(asked).toEqual(["heed-core-simd.wasm", "heed-core-simd.wasm"]);
    const wasmBinary = readFileSync(`${root}dist/wasm/heed-simd.wasm`);
    await expectRejection("wasm-load", ["expected core-simd"], () => load({ wasmBinary }));
  });

  it("loads relaxed SIMD with threads", () => {
    const folder = mkdtempSync(join(tmpdir(), "heed-core-"));
    writeFileSync(
      join(folder, "run.mjs"),
      `import { load } from ${JSON.stringify(`${root}dist/node_core.js`)};
      const heed = await load({ threads: 2, simd: "relaxed" });
      const { output } = heed.attention([[1, 0]], [[1, 0], [0, 1]], [[1], [0]], { scale: 1 });
      console.log(heed.build, heed.variant, output.data[0].toFixed(3));
      heed.dispose();`,
    );
    const hasRelaxed = Number(process.versions.node.split(".")[0]) >= 22;
    const flags = hasRelaxed ? [] : ["--experimental-wasm-relaxed-simd"];
    try {
      const printed = execFileSync(process.execPath, [...flags, join(folder, "run.mjs")], {
        encoding: "utf8",
        timeout: 60_000,
      });
      expect(printed.trim()).toBe("core relaxed-threads 0.731");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
