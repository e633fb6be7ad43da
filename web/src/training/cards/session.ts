// A question at the end of a hand of cards pools the hand: one layer, and its last row is the answer.
import type { TransformerModel } from "heed/training";
import { uniformSource } from "../../lib/random.js";
import { accuracyOf, favourites } from "../logits.js";
import type { ModelTask } from "../model_session.js";
import { SEEDS } from "../session.js";
import { CARDS, drawHands, type Hands, LEN, RANKS, rankOf, VOCABULARY } from "./hands.js";
import { HEADS, variants } from "./variants.js";

const BATCH = 64;
const TEST_BATCH = 256;

/** Of one number a place those of the questions. */
const atQuestions = (numbers: ArrayLike<number>): number[] =>
  Array.from({ length: numbers.length / LEN }, (_, hand) => numbers[hand * LEN + CARDS] as number);

const meanOf = (heads: readonly Float32Array[]): Float32Array =>
  (heads[0] as Float32Array).map((_, cell) =>
    heads.reduce((sum, head) => sum + (head[cell] as number) / heads.length, 0),
  );

/** What the questions give to the cards of their hands, [hand, rank]: the heads' mean, then each. */
function poolingWeights(model: TransformerModel, { tokens, batch }: Hands): Float32Array[] {
  const { data } = model.heads({ layer: 0 });
  const heads = Array.from({ length: HEADS }, (_, head) => {
    const weights = new Float32Array(batch * RANKS.length);
    for (let hand = 0; hand < batch; hand++) {
      const row = ((hand * HEADS + head) * LEN + CARDS) * LEN;
      for (let place = 0; place < CARDS; place++) {
        const rank = rankOf(tokens[hand * LEN + place] as number);
        weights[hand * RANKS.length + rank] = data[row + place] as number;
      }
    }
    return weights;
  });
  return [meanOf(heads), ...heads];
}

export function cards(variant: string): ModelTask {
  const { mechanism, params } = variants.of(variant);
  const test = drawHands(TEST_BATCH, uniformSource(SEEDS.test));
  // A hand for each question: what the rows of the pictures stand for.
  const shown = drawHands(RANKS.length, uniformSource(SEEDS.shown), (hand) => hand);
  const guess = (model: TransformerModel, { tokens, batch }: Hands) =>
    favourites(model.predict({ tokens, batch }).data, VOCABULARY);
  return {
    model: {
      vocabulary: VOCABULARY,
      embedDim: 64,
      ffDim: 64,
      numLayers: 1,
      numHeads: HEADS,
      // A hand is a set.
      position: "none",
      mechanism,
      ...(params && { params }),
    },
    learningRate: 3e-3,
    warmupSteps: 20,
    steps: variants.steps,
    draw: (next) => drawHands(BATCH, next),
    look: (model) => ({
      accuracy: accuracyOf(guess(model, test), test.targets),
      tokens: [...shown.tokens],
      targets: atQuestions(shown.targets),
      guesses: atQuestions(guess(model, shown)),
      heads: poolingWeights(model, shown),
    }),
  };
}
