// npm run bench -- <arguments of heed-bench>: builds the optimised library and runs heed-bench, whose exit
// status it has.
import { join } from "node:path";
import { buildNative } from "./build.mjs";
import { typedFolder } from "./command_line.mjs";
import { handOver } from "./process.mjs";
import { setup } from "./setup.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

await main(async () => {
  await setup();
  const tools = toolchain();
  await buildNative(tools, "native");
  const program = join(root, "build/release/native_bench/heed-bench");
  const options = { cwd: typedFolder, env: tools.env };
  process.exitCode = await handOver(program, process.argv.slice(2), options);
});
