// Two layers learn to copy.
import type { TransformerModel } from "heed/training";
import { uniformSource } from "../../lib/random.js";
import { accuracyOf, favourites } from "../logits.js";
import type { ModelTask } from "../model_session.js";
import { SEEDS } from "../session.js";
import { drawSequences, LEN, LETTERS } from "./sequences.js";
import { HEADS, LAYERS, variants } from "./variants.js";

const BATCH = 32;
const TEST_BATCH = 64;

/** A layer's pictures, head by head, of the only sequence in the last call. */
function headsOf(model: TransformerModel, layer: number): Float32Array[] {
  const { data } = model.heads({ layer });
  const size = LEN * LEN;
  return Array.from({ length: HEADS }, (_, head) => data.slice(head * size, (head + 1) * size));
}

export function copying(variant: string): ModelTask {
  const { mechanism, params } = variants.of(variant);
  const test = drawSequences(TEST_BATCH, uniformSource(SEEDS.test));
  const shown = drawSequences(1, uniformSource(SEEDS.shown));
  const guess = (model: TransformerModel, { tokens, batch }: typeof test) =>
    favourites(model.predict({ tokens, batch }).data, LETTERS.length);
  return {
    model: {
      vocabulary: LETTERS.length,
      embedDim: 64,
      numLayers: LAYERS,
      numHeads: HEADS,
      mechanism,
      ...(params && { params }),
    },
    learningRate: 3e-3,
    warmupSteps: 50,
    steps: variants.steps,
    draw: (next) => drawSequences(BATCH, next),
    look: (model) => ({
      accuracy: accuracyOf(guess(model, test), test.targets),
      tokens: [...shown.tokens],
      targets: [...shown.targets],
      guesses: guess(model, shown),
      heads: Array.from({ length: LAYERS }, (_, layer) => headsOf(model, layer)).flat(),
    }),
  };
}
