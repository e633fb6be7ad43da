// An image that a few latents read: their weights over all pixels, and what the whole block makes of it.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";

export const SIDES = [8, 12, 16, 24, 32] as const;
export type Side = (typeof SIDES)[number];
export const MOST_LATENTS = 8;

/** Sines and cosines of a place from 0 to 1, whose products depend on the distance alone. */
const WAVES = [2, 1, 0.5];
const codeOf = (place: number): number[] =>
  WAVES.flatMap((wave) => {
    const angle = (2 * Math.PI * place) / wave / 2;
    return [Math.sin(angle), Math.cos(angle)];
  });
/** Shape and ground. */
const LIGHT = 2;
export const DIM = 4 * WAVES.length + LIGHT;
const FF = 8;

/** A disc and a bar on an even ground; 0 to 1. */
export function brightness(x: number, y: number): number {
  const disc = Math.hypot(x - 0.32, y - 0.35) < 0.2 ? 0.9 : 0;
  const bar = x > 0.6 && x < 0.85 && y > 0.55 && y < 0.72 ? 0.7 : 0;
  return Math.max(disc, bar, 0.12);
}

const middle = (at: number, side: number) => (at + 0.5) / side;
/** What a pixel is: where it stands, and how much it is shape and ground. */
export function pixels(side: number): { image: Float32Array; rows: number[][] } {
  const image = Float32Array.from({ length: side * side }, (_, at) =>
    brightness(middle(at % side, side), middle(Math.floor(at / side), side)),
  );
  const rows = Array.from(image, (light, at) => [
    ...codeOf(middle(at % side, side)),
    ...codeOf(middle(Math.floor(at / side), side)),
    2 * light - 1,
    1 - 2 * light,
  ]);
  return { image, rows };
}

/** Where latents look that ask for a place. */
const PLACES: readonly (readonly [number, number])[] = [
  [0.25, 0.25],
  [0.75, 0.75],
  [0.75, 0.25],
  [0.25, 0.75],
];
const ASK = 3;
const ANYWHERE = Array.from({ length: 4 * WAVES.length }, () => 0);
export const LATENTS: readonly (readonly number[])[] = [
  [...codeOf(0.25), ...codeOf(0.25), 0, 0],
  [...ANYWHERE, ASK, -ASK],
  ...PLACES.slice(1).map(([x, y]) => [...codeOf(x), ...codeOf(y), 0, 0]),
  [...ANYWHERE, -ASK, ASK],
  [...codeOf(0.5), ...codeOf(0.5), 0, 0],
  [...codeOf(0.32), ...codeOf(0.35), 1, -1],
];

const identity = (size: number, factor: number): number[] =>
  Array.from({ length: size * size }, (_, at) =>
    Math.floor(at / size) === at % size ? factor : 0,
  );
/** How sharply latents ask. */
export const GAIN = 3.5;
const heads = (values: number[]): ExampleTensor => floats(values, [1, DIM, DIM]);
const drawn = (name: string, rows: number, columns: number): ExampleTensor => {
  const normal = normalSource(hashText(name));
  const size = 1 / Math.sqrt(columns);
  return floats(
    Array.from({ length: rows * columns }, () => size * normal()),
    [rows, columns],
  );
};
export const W_UP = drawn("perceiver up", FF, DIM);
export const W_DOWN = drawn("perceiver down", DIM, FF);

export interface Reading {
  called: Called;
  image: Float32Array;
  /** [latents, pixels] */
  weights: Float32Array;
}

export function reading(heed: Heed, side: Side, count: number): Reading {
  const { image, rows } = pixels(side);
  const key = floats(rows.flat(), [1, rows.length, DIM]);
  const latents = floats(LATENTS.slice(0, count).flat(), [1, count, DIM]);
  const [wQ, wK, wV] = [
    heads(identity(DIM, GAIN)),
    heads(identity(DIM, 1)),
    heads(identity(DIM, 1)),
  ];
  const wO = floats(identity(DIM, 1), [DIM, 1, DIM]);
  const inputs = { latents, key, wQ, wK, wV, wO, wUp: W_UP, wDown: W_DOWN };
  const called = make(heed, { id: "perceiver", inputs, params: {} });
  // The block returns what the latents have become; its weights are those of its attention alone.
  const normed = ({ data, shape }: ExampleTensor) =>
    heed.layerNorm({ data: data as Float32Array, shape });
  const attended = {
    query: normed(latents),
    key: normed(key),
    value: normed(key),
    wQ,
    wK,
    wV,
  };
  const { weights } = heed.run("multi_head", attended, { returnWeights: true });
  return { called, image, weights: weights?.data as Float32Array };
}
