// npm start: from whatever is there to the demo page in a browser.
//   npm start                  set up, build, serve, print the address
//   npm start -- --port 8080
//   npm start -- --lan         for phones in the same network too
//   npm start -- --check       load the page in headless Chromium, prove that it computes, exit
import { existsSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build, siteFolder } from "./build.mjs";
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

await main(async () => {
  const { values } = parseArgs({
    options: {
      check: { type: "boolean" },
      lan: { type: "boolean", default: false },
      port: { type: "string", default: "4173" },
    },
  });
  const port = Number(values.port);
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new Error(`--port ${values.port}: it must be a whole number from 0 to 65535`);
  }
  await setup();
  const tools = toolchain();
  await build(["wasm", "package", "web"], tools);
  if (values.check) {
    await step("Check the page in Chromium", () => check(tools.chromium));
    return;
  }
  const { urls } = await serveNear(siteFolder, port, { lan: values.lan });
  console.log(`\nheed is at ${urls.join("\n     or at ")}   (Ctrl+C stops it)`);
});
