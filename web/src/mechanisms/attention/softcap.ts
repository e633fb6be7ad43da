// What softcap makes of scores: of a line of them, and of one query's eight keys. The scores are the query, the
// keys are unit vectors.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import { unitVectors } from "../../lib/example_tokens.js";

/** Where caps may lie, and the one that Gemma 2 has in its attention. */
export const CAP = { min: 5, max: 100, resting: 50 } as const;
export const SCORES: readonly number[] = [60, 58, 54, 46, 30, 10, -10, -40];
/** The line, from -100 to 100. */
export const LINE: readonly number[] = Array.from({ length: 81 }, (_, at) => (at - 40) * 2.5);

export interface Capped {
  called: Called;
  /** Of LINE. */
  line: Float32Array;
  /** Of SCORES. */
  scores: Float32Array;
  weights: Float32Array;
  /** Softmax of SCORES as they are. */
  plain: Float32Array;
}

function rowOf(scores: readonly number[]) {
  const square = [1, 1, scores.length, scores.length];
  const unit = { data: unitVectors(square), shape: square };
  return { q: floats(scores, [1, 1, 1, scores.length]), k: unit, v: unit };
}

/** Throws HeedError. */
export function capped(heed: Heed, cap: number): Capped {
  const params = { scale: 1, softcap: cap, returnWeights: true, returnScores: "capped" };
  const called = make(heed, { id: "attention", inputs: rowOf(SCORES), params });
  const line = make(heed, { id: "attention", inputs: rowOf(LINE), params });
  const plain = make(heed, { id: "attention", inputs: rowOf(SCORES), params: { scale: 1 } });
  return {
    called,
    line: resultOf(line, "scores").data,
    scores: resultOf(called, "scores").data,
    weights: resultOf(called, "weights").data,
    plain: resultOf(plain, "output").data,
  };
}
