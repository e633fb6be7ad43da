// Six small images of +1 and -1, a damaged one, and its way back.

import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import { t } from "../../lib/messages.js";
import { hashText, uniformSource } from "../../lib/random.js";

export const SIDE = 16;
export const PIXELS = SIDE * SIDE;
export const MOST_STEPS = 5;

const MIDDLE = (SIDE - 1) / 2;
const inks: Readonly<Record<string, (x: number, y: number) => boolean>> = {
  ring: (x, y) => Math.abs(Math.hypot(x, y) - 5) < 1.4,
  cross: (x, y) => Math.abs(Math.abs(x) - Math.abs(y)) < 1.6,
  plus: (x, y) => Math.abs(x) < 1.6 || Math.abs(y) < 1.6,
  frame: (x, y) => Math.max(Math.abs(x), Math.abs(y)) > 5.2,
  stripes: (x) => Math.floor((x + 8) / 2) % 2 === 0,
  triangle: (x, y) => y > -5 && y < 6 && Math.abs(x) < (y + 6) * 0.6,
};

const KINDS = Object.keys(inks);

/** In the order of the memories. */
export const NAMES: readonly string[] = [
  t`ring`,
  t`cross`,
  t`plus`,
  t`frame`,
  t`stripes`,
  t`triangle`,
];

function image(name: string): Float32Array {
  return Float32Array.from({ length: PIXELS }, (_, at) =>
    inks[name]?.((at % SIDE) - MIDDLE, Math.floor(at / SIDE) - MIDDLE) ? 1 : -1,
  );
}

export const MEMORIES: readonly Float32Array[] = KINDS.map(image);

export interface Damage {
  memory: number;
  /** Share of the pixels that are drawn anew by chance. */
  noise: number;
  /** The lower half is grey: 0. */
  halfHidden: boolean;
}

/** The damaged image; `flipped` are pixels that a visitor has turned over. */
export function damaged(damage: Damage, flipped: ReadonlySet<number>): Float32Array {
  const uniform = uniformSource(hashText(`noise ${damage.memory}`));
  const original = MEMORIES[damage.memory] as Float32Array;
  return original.map((pixel, at) => {
    const [chance, coin] = [uniform(), uniform()];
    const drawn = chance < damage.noise ? (coin < 0.5 ? -1 : 1) : pixel;
    const seen = damage.halfHidden && at >= PIXELS / 2 ? 0 : drawn;
    return flipped.has(at) ? (seen === 0 ? 1 : -seen) : seen;
  });
}

export interface Retrieval {
  called: Called;
  /** The state after the steps, [PIXELS]. */
  state: Float32Array;
  /** How much of each memory it is made of, [memories]. */
  weights: Float32Array;
}

const STORED = floats(
  MEMORIES.flatMap((memory) => [...memory]),
  [1, 1, MEMORIES.length, PIXELS],
);

/** After `steps` >= 1 updates with inverse temperature `beta`. */
export function retrieve(heed: Heed, start: Float32Array, beta: number, steps: number): Retrieval {
  const inputs = { q: floats(start, [1, 1, 1, PIXELS]), k: STORED, v: STORED };
  const params = { scale: beta, steps, returnWeights: true };
  const called = make(heed, { id: "hopfield", inputs, params });
  return {
    called,
    state: called.results.output?.data as Float32Array,
    weights: called.results.weights?.data as Float32Array,
  };
}

/** Pixels whose sign is that of the memory. */
export function agreeing(state: Float32Array, memory: number): number {
  const wanted = MEMORIES[memory] as Float32Array;
  return state.reduce(
    (count, pixel, at) => count + (pixel * (wanted[at] as number) > 0 ? 1 : 0),
    0,
  );
}
