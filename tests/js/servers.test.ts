// The packed package where servers run it: Next.js, on its server and in the pages it builds, and
// Cloudflare's runtime. The set-up provides both; where it could not, these tests are skipped.
import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { Browser } from "@playwright/test";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { toolchain } from "../../scripts/toolchain.mjs";
import { bundleForWorkerd } from "./bundle.js";
import { launch, showUrl } from "./chromium.js";
import { fixtures, installPacked, runIn } from "./packed.js";

const NEAR = expect.closeTo(0.731, 3);
const { next, workerd } = toolchain();
process.env.NEXT_TELEMETRY_DISABLED = "1";

let server: ChildProcess | undefined;
afterEach(() => {
  server?.kill();
  server = undefined;
});

interface Served {
  program: string;
  args: string[];
  cwd: string;
  /** What it says of its port: the first group. */
  port: RegExp;
}

/** Starts a server and waits for its port. */
function serve({ program, args, cwd, port }: Served): Promise<string> {
  const child = spawn(program, args, { cwd, stdio: ["ignore", "pipe", "pipe", "pipe"] });
  server = child;
  return new Promise((resolve, reject) => {
    let said = "";
    for (const stream of child.stdio) {
      (stream as Readable | null)?.on("data", (chunk) => {
        said += chunk;
        const found = port.exec(said)?.[1];
        if (found !== undefined) resolve(`http://127.0.0.1:${found}/`);
      });
    }
    child.on("exit", (code) => reject(new Error(`it ended with ${code}: ${said}`)));
  });
}

describe.skipIf(workerd === null)("workerd, Cloudflare's runtime", () => {
  it("attends with a module that it compiled", async () => {
    const { folder, remove } = installPacked();
    try {
      cpSync(`${fixtures}/edge`, folder, { recursive: true });
      const bundle = await bundleForWorkerd(join(folder, "worker.js"));
      expect(bundle).toContain('from "heed/wasm/heed-simd.wasm"');
      writeFileSync(join(folder, "bundle.js"), bundle);
      const args = ["serve", "--control-fd=3", "config.capnp"];
      const url = await serve({
        program: workerd as string,
        args,
        cwd: folder,
        port: /"port":(\d+)/,
      });
      const answer = await (await fetch(url)).json();
      expect(answer).toMatchObject({ variant: "simd", value: NEAR });
    } finally {
      remove();
    }
  });
});

describe.skipIf(next === null)("Next.js", () => {
  const program = "node_modules/next/dist/bin/next";
  let packed: ReturnType<typeof installPacked>;
  let browser: Browser;

  const start = (): Promise<string> => {
    const args = [program, "start", "-p", "0"];
    return serve({ program: process.execPath, args, cwd: packed.folder, port: /localhost:(\d+)/ });
  };

  beforeAll(async () => {
    packed = installPacked(next as string);
    cpSync(`${fixtures}/next`, packed.folder, { recursive: true });
    runIn(packed.folder, process.execPath, program, "build");
    browser = await launch();
  });
  afterAll(async () => {
    await browser?.close();
    packed?.remove();
  });

  it("attends in a route handler", async () => {
    const answer = await (await fetch(`${await start()}attend`)).json();
    expect(answer).toMatchObject({ value: NEAR });
  });

  it("attends in a server component", async () => {
    const page = await (await fetch(await start())).text();
    const said = /<output id="server">(.*?)<\/output>/.exec(page)?.[1] ?? "";
    expect(JSON.parse(said.replaceAll("&quot;", '"'))).toMatchObject({ value: NEAR });
  });

  it("attends in a client component, and in a worker that this spawns", async () => {
    const { result } = await showUrl(browser, await start());
    expect(result).toMatchObject({ value: NEAR, spawned: NEAR });
  });
});
