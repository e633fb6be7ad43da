// The demo page in Chromium, served as a strict host would serve it.
import { defineConfig } from "@playwright/test";

// A port of this run's own, so that two runs do not meet; workers inherit it.
process.env.HEED_E2E_PORT ??= String(20_000 + (process.pid % 20_000));
const PORT = Number(process.env.HEED_E2E_PORT);

// Chromium takes the last list of features alone: the first names are those of Playwright's own.
const DISABLED = [
  "AimEnabled",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsFirstBalancedModeAutoEnable",
  "HttpsUpgrades",
  "LensOverlay",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
  "ThirdPartyStoragePartitioning",
  // Of every window: two pages of its own for the address bar and a renderer in reserve, which are half of
  // what a test costs that opens a tab and a page (5.9 s of CPU time, 3.2 s without).
  "WebUIOmniboxPopup",
  "WebUIOmniboxAimPopup",
  "WebUIOmniboxFullPopup",
  "SpareRendererForSitePerProcess",
];

// A page lives for seconds: what is called often is compiled anew at 5000 and 30 000 calls, in place of hundreds,
// which is a third of the time of axe.
const TIERS = "--invocation-count-for-maglev=5000,--invocation-count-for-turbofan=30000";

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
        `--disable-features=${DISABLED.join(",")}`,
        `--js-flags=${TIERS}`,
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
