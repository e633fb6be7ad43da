import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const root = fileURLToPath(new URL("../..", import.meta.url));

// Tests run against dist/, as a user would: `npm run build` makes it.
export default defineConfig({
  root,
  resolve: {
    alias: {
      "heed/core": `${root}dist/node_core.js`,
      "heed/gradients": `${root}dist/node_gradients.js`,
      "heed/training": `${root}dist/node_training.js`,
      "heed/worker": `${root}dist/node_worker.js`,
      "heed/inline": `${root}dist/inline.js`,
      heed: `${root}dist/node.js`,
    },
  },
  test: {
    include: ["tests/js/**/*.test.ts", "tests/conformance/**/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // The machine's cores belong to the threaded variants under test.
    maxWorkers: 2,
  },
});
