// npm start: from whatever is there to the demo page in a browser.
//   npm start                  set up, build, serve, print the address
//   npm start -- --port 8080
//   npm start -- --lan         for phones in the same network too
//   npm start -- --check       load the page in headless Chromium, prove that it computes, exit
import { existsSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build, siteFolder } from "./build.mjs";
import { commandLine, portOf } from "./command_line.mjs";
import { serve, serveNear } from "./serve.mjs";
import { setup } from "./setup.mjs";
import { main, step } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

async function check(chromium) {
  if (!chromium) throw new Error("no Chromium found; install it or set HEED_CHROMIUM");
  const module = join(root, "web/check.mjs");
  if (!existsSync(module)) throw new Error("web/check.mjs is not here");
  const server = await serve(siteFolder);
  try {
    const page = await import(module);
    await page.check(server.url, { chromium });
  } finally {
    server.close();
  }
}

const options = {
  check: { type: "boolean" },
  lan: { type: "boolean", default: false },
  port: { type: "string", default: "4173" },
};
const given = await commandLine(import.meta.url, (args) => {
  const { values } = parseArgs({ args, options });
  return { ...values, port: portOf(values.port) };
});

await main(async () => {
  await setup();
  const tools = toolchain();
  await build(["wasm", "package", "web"], tools);
  if (given.check) {
    await step("Check the page in Chromium", () => check(tools.chromium));
    return;
  }
  const { urls } = await serveNear(siteFolder, given.port, { lan: given.lan });
  console.log(`\nheed is at ${urls.join("\n     or at ")}   (Ctrl+C stops it)`);
});
