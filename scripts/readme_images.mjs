// The pictures of the first page in the README, from the built site (npm run build -- web):
//   node scripts/readme_images.mjs
import { existsSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "@playwright/test";
import { siteFolder } from "./build.mjs";
import { serve } from "./serve.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

await main(async () => {
  if (!existsSync(join(siteFolder, "index.html"))) {
    throw new Error("the site is not built: npm run build");
  }
  const server = await serve(siteFolder);
  const browser = await chromium.launch({
    executablePath: toolchain().chromium,
    args: ["--no-sandbox", "--disable-gpu"],
  });
  try {
    for (const theme of ["light", "dark"]) {
      const page = await browser.newPage({
        viewport: { width: 1280, height: 900 },
        colorScheme: theme,
        reducedMotion: "reduce",
      });
      await page.goto(server.url);
      const caption = page.getByTestId("caption");
      await caption.filter({ hasText: /output \d/ }).waitFor(); // it has computed
      await page.screenshot({ path: join(root, `docs/images/page-${theme}.png`) });
    }
  } finally {
    await browser.close();
    server.close();
  }
});
