// npm run bench -- <arguments of heed-bench>: builds the optimised library and runs heed-bench.
import { join } from "node:path";
import { buildNative } from "./build.mjs";
import { run } from "./process.mjs";
import { setup } from "./setup.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

await main(async () => {
  await setup();
  const tools = toolchain();
  await buildNative(tools, "native");
  const program = join(root, "build/release/native_bench/heed-bench");
  await run(program, process.argv.slice(2), { cwd: process.cwd(), env: tools.env });
});
