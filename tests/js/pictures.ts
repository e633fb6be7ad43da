// What tests of pictures share: a palette, and where texts lie.
import { expect } from "vitest";
import { makePalette } from "../../web/src/lib/palette.js";
import type { Scene, Shape, TextShape } from "../../web/src/lib/scene.js";
import { textWidth } from "../../web/src/lib/text_width.js";

export const PALETTE = makePalette(() => "#336699", false);

export const textsIn = (shapes: readonly Shape[]): TextShape[] =>
  shapes.filter((shape): shape is TextShape => shape.kind === "text");
export const textsOf = ({ shapes }: Scene): TextShape[] => textsIn(shapes);

/** Where a text begins and ends. */
export function spanOf({ x, text, size, bold, anchor }: TextShape): [number, number] {
  const wide = textWidth(text, size, bold);
  const left = { start: x, middle: x - wide / 2, end: x - wide }[anchor];
  return [left, left + wide];
}

export function expectInside(scene: Scene): void {
  const texts = textsOf(scene).filter(({ rotate }) => !rotate);
  expect(texts.length).toBeGreaterThan(3);
  for (const text of texts) {
    const [left, right] = spanOf(text);
    expect(left, text.text).toBeGreaterThanOrEqual(0);
    expect(right, text.text).toBeLessThanOrEqual(scene.width);
  }
}
