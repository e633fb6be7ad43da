// The demo page in Chromium, served as a strict host would serve it.
import { defineConfig } from "@playwright/test";

// A port of this run's own, so that two runs do not meet; workers inherit it.
process.env.HEED_E2E_PORT ??= String(20_000 + (process.pid % 20_000));
const PORT = Number(process.env.HEED_E2E_PORT);

export default defineConfig({
  testDir: ".",
  outputDir: "../../build/results/playwright",
  fullyParallel: true,
  workers: 2,
  forbidOnly: true,
  timeout: 60_000,
  // A test that passes only the second time is reported as flaky, by name.
  retries: 1,
  expect: { timeout: 15_000 },
  use: {
    baseURL: `http://localhost:${PORT}/`,
    viewport: { width: 1280, height: 860 },
    launchOptions: {
      executablePath: process.env.HEED_CHROMIUM ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
  webServer: {
    command: `node scripts/serve.mjs build/web --port ${PORT}`,
    cwd: "../..",
    port: PORT,
    reuseExistingServer: false,
  },
});
