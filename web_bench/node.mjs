// The Node part of the benchmark: processes of the newest Node that the set-up has.
import { fork } from "node:child_process";
import { join } from "node:path";
import { capture } from "../scripts/process.mjs";
import { root, toolchain } from "../scripts/toolchain.mjs";

/** Runs a file of this folder and gives the result that it sends. */
function ask(file, argument, progress = () => {}) {
  const { node24 } = toolchain();
  if (!node24) throw new Error("needs Node 22.18 or newer, which has relaxed SIMD: npm run setup");
  return new Promise((resolve, reject) => {
    const child = fork(join(root, "web_bench", file), [argument], {
      execPath: node24,
      execArgv: ["--disable-warning=ExperimentalWarning"],
    });
    let result;
    child.on("message", (message) => {
      if (message.progress) progress(...message.progress);
      if (message.result) result = message.result;
    });
    child.on("error", reject);
    child.on("exit", (code) => {
      if (result) resolve(result);
      else reject(new Error(`${file} ended with status ${code} in Node`));
    });
  });
}

/** @returns {Promise<{place: "node", engine: string, result: object}>} */
export async function inNode(options, progress) {
  const result = await ask("node_main.mjs", JSON.stringify(options), progress);
  return { place: "node", engine: `Node ${capture(toolchain().node24, ["--version"])}`, result };
}

/** `times` cold starts, each in a process of its own. */
export async function coldStartsInNode(threads, times) {
  const starts = [];
  for (let n = 0; n < times; n++) starts.push(await ask("cold_start_node.mjs", `${threads}`));
  return starts;
}
