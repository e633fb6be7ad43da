// The pictures of the heads, and what they do for the last letter.
import type { Rows } from "../lib/file.js";
import { fixed } from "../lib/format.js";
import { makeMatrix } from "../lib/make_matrix.js";
import type { Cell, Matrix } from "../lib/matrix.js";
import { valueAt } from "../lib/matrix.js";
import { t } from "../lib/messages.js";
import { HEADS, type Look } from "./session.js";
import { LEN, LETTERS } from "./task.js";

export interface HeadPicture {
  title: string;
  matrix: Matrix;
}

export const letter = (token: number): string => LETTERS[token] ?? "";

function pictureOf(look: Look, layer: number, head: number): HeadPicture {
  const all = look.heads[layer] as Float32Array;
  const values = all.subarray(head * LEN * LEN, (head + 1) * LEN * LEN);
  const labels = look.tokens.map(letter);
  // Recurrent mechanisms add and take away.
  const kind = values.every((value) => value >= 0) ? "weight" : "score";
  const title = t`Layer ${layer + 1}, head ${head + 1}`;
  const hidden = (row: number, column: number) => column > row;
  return {
    title,
    matrix: makeMatrix({ title, kind, values, rowLabels: labels, columnLabels: labels, hidden }),
  };
}

/** All heads, layer by layer. */
export const headPictures = (look: Look): HeadPicture[] =>
  look.heads.flatMap((_, layer) =>
    Array.from({ length: HEADS }, (_unused, head) => pictureOf(look, layer, head)),
  );

/** How far back the letter of this place stood last, or 0. */
const distanceBack = (tokens: readonly number[], place: number): number =>
  place - tokens.lastIndexOf(tokens[place] as number, place - 1);

/** The mean weight that heads give, over the places whose letter has stood before. */
export function roleOf({ matrix }: HeadPicture, tokens: readonly number[]) {
  let [previous, induction, count] = [0, 0, 0];
  for (let place = 1; place < tokens.length; place++) {
    const back = distanceBack(tokens, place);
    if (back > place) continue;
    previous += valueAt(matrix, place, place - 1);
    induction += valueAt(matrix, place, place - back + 1);
    count++;
  }
  return { previous: previous / count, induction: induction / count };
}

/** The head that gives most to what followed last time. */
export function strongestInduction(pictures: readonly HeadPicture[], look: Look): number {
  const scores = pictures.map((picture) => roleOf(picture, look.tokens).induction);
  return Math.max(0, scores.indexOf(Math.max(...scores)));
}

/** A sentence about a cell: who looks at what, and what stands there. */
export function cellSentence({ title, matrix }: HeadPicture, cell: Cell): string {
  const { row, column } = cell;
  const name = (place: number) => t`${matrix.rowLabels[place]} (place ${place + 1})`;
  if (column > row)
    return t`${title}: ${name(row)} does not see ${name(column)}, which comes later.`;
  return t`${title}: ${name(row)} looks at ${name(column)}, weight ${fixed(valueAt(matrix, row, column))}.`;
}

export const headsTable = (pictures: readonly HeadPicture[], look: Look): Rows => ({
  columns: [t`head`, t`to the letter before`, t`to what followed last time`],
  rows: pictures.map((picture) => {
    const { previous, induction } = roleOf(picture, look.tokens);
    return [picture.title, fixed(previous), fixed(induction)];
  }),
});
