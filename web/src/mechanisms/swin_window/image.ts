// Which pixels of an image each pixel sees: asked of heed without any q and k.
import type { Heed } from "heed";
import type { ExampleParams } from "../../lib/example.js";

export const SIDE = 16;
export const PIXELS = SIDE * SIDE;
const DIM = 8;

export interface Sight {
  /** [PIXELS, PIXELS], row after row of the image; 1 where the pixel is seen. */
  picture: Uint8Array;
  visible: number;
  milliseconds: number;
}

export function sight(heed: Heed, id: string, params: ExampleParams): Sight {
  const tensor = { data: new Float32Array(PIXELS * DIM), shape: [1, 1, PIXELS, DIM] };
  const start = performance.now();
  const inputs = { q: tensor, k: tensor, v: tensor };
  const picture = heed.explain(id, inputs, { grid: [SIDE, SIDE], ...params }).data as Uint8Array;
  const milliseconds = performance.now() - start;
  return { picture, visible: picture.reduce((sum, kept) => sum + kept, 0), milliseconds };
}

export const rowOf = ({ picture }: Sight, pixel: number): Uint8Array =>
  picture.subarray(pixel * PIXELS, (pixel + 1) * PIXELS);
