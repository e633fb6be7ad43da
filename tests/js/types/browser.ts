// Compiled by types.test.ts, never run: the files that pages import by their paths have types.
import { type Heed, HeedError, load } from "../../../dist/browser.js";
import { load as loadCore } from "../../../dist/browser_core.js";
import { load as loadGradients } from "../../../dist/browser_gradients.js";
import { load as loadTraining } from "../../../dist/browser_training.js";
import { spawn } from "../../../dist/browser_worker.js";

export async function check(): Promise<void> {
  const heed: Heed = await load({ threads: 1 });
  const core = await loadCore();
  const gradients = await loadGradients();
  const training = await loadTraining();
  const remote = await spawn({ threads: 2 });
  const rows = [[1, 0]];
  heed.attention(rows, rows, rows).output.data satisfies Float32Array;
  core.attention(rows, rows, rows).output.data satisfies Float32Array;
  gradients.attention.vjp(rows, rows, rows).dispose();
  training.variant satisfies string;
  (await remote.attention(rows, rows, rows)).output.data satisfies Float32Array;
  // @ts-expect-error a number is no option
  await load({ simd: 1 });
  // @ts-expect-error there is no such code
  new HeedError("no-such-code", "");
}
