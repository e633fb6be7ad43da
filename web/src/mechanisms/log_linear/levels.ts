import { COUNT, DIM } from "../gated_linear/story.js";

/** Level 0 is the token itself, level l a block of 2^(l - 1) tokens: enough for all. */
export const LEVELS = Math.ceil(Math.log2(COUNT + 1)) + 1;

/** The same for every token [COUNT, LEVELS]: each level weighs `ratio` times the one before. */
export const levelWeights = (ratio: number): Float32Array =>
  Float32Array.from({ length: COUNT * LEVELS }, (_, at) => ratio ** (at % LEVELS));

/** The states, by the tokens that their block holds. */
export const BLOCKS = {
  size: DIM,
  names: Array.from({ length: LEVELS - 1 }, (_, level) => String(2 ** level)),
};
