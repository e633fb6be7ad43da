// An encoder reads a word, a decoder writes it in another order: who looks where is the alignment.
import type { TransformerModel } from "heed/training";
import { uniformSource } from "../../lib/random.js";
import { accuracyOf, favourites } from "../logits.js";
import type { ModelTask } from "../model_session.js";
import { SEEDS } from "../session.js";
import { drawWords, LEN, type Order, START, VOCABULARY } from "./sequences.js";
import { variants } from "./variants.js";

const BATCH = 32;
const TEST_BATCH = 32;

/** What the model writes by itself: each letter follows from those that it wrote before. */
function write(model: TransformerModel, source: Int32Array, batch: number): Int32Array {
  const tokens = new Int32Array(batch * LEN).fill(START);
  const written = new Int32Array(batch * LEN);
  for (let place = 0; place < LEN; place++) {
    const guesses = favourites(model.predict({ tokens, source, batch }).data, VOCABULARY);
    for (let b = 0; b < batch; b++) {
      const letter = guesses[b * LEN + place] as number;
      written[b * LEN + place] = letter;
      if (place + 1 < LEN) tokens[b * LEN + place + 1] = letter;
    }
  }
  return written;
}

export function alignment(order: Order, variant: string): ModelTask {
  const test = drawWords(TEST_BATCH, order, uniformSource(SEEDS.test));
  const shown = drawWords(1, order, uniformSource(SEEDS.shown));
  return {
    model: {
      vocabulary: VOCABULARY,
      embedDim: 32,
      numLayers: 1,
      encoderLayers: 1,
      numHeads: 1,
      position: "learned",
      maxLen: LEN,
      crossMechanism: variants.of(variant).mechanism,
    },
    learningRate: 5e-3,
    warmupSteps: 50,
    steps: variants.steps,
    draw: (next) => drawWords(BATCH, order, next),
    look: (model) => {
      const accuracy = accuracyOf(write(model, test.source, test.batch), test.targets);
      const guesses = [...write(model, shown.source, 1)];
      return {
        accuracy,
        tokens: [...shown.source],
        targets: [...shown.targets],
        guesses,
        heads: (["cross", "self", "encoder"] as const).map(
          (of) => model.heads({ layer: 0, of }).data,
        ),
      };
    },
  };
}
