// Copying with induction heads.
import { fixed } from "../../lib/format.js";
import { makeMatrix } from "../../lib/make_matrix.js";
import { valueAt } from "../../lib/matrix.js";
import { t } from "../../lib/messages.js";
import type { Look } from "../session.js";
import { crossEntropy, kindOf, nats, type Picture, type TaskWords, tokenPlaces } from "../words.js";
import { LETTERS } from "./sequences.js";
import { HEADS, variants } from "./variants.js";

const letter = (token: number): string => LETTERS[token] ?? "";

function pictures({ heads, tokens }: Look): Picture[] {
  const labels = tokens.map(letter);
  return heads.map((values, n) => {
    const title = t`Layer ${Math.floor(n / HEADS) + 1}, head ${(n % HEADS) + 1}`;
    const hidden = (row: number, column: number) => column > row;
    const kind = kindOf(values);
    const matrix = { title, kind, values, rowLabels: labels, columnLabels: labels, hidden };
    return { title, matrix: makeMatrix(matrix) };
  });
}

/** How far back the letter of this place stood last, or more than there is. */
const distanceBack = (tokens: readonly number[], place: number): number =>
  place - tokens.lastIndexOf(tokens[place] as number, place - 1);

/** The mean weight that heads give, over the places whose letter has stood before. */
function roleOf({ matrix }: Picture, { tokens }: Look) {
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

export const copyingWords: TaskWords = {
  words: t`copying`,
  title: t`Watch induction heads form`,
  lead: t`A transformer of two layers learns, in this tab, to go on with a sequence that repeats itself. Where a round ends differs, so counting back does not help: a head of the first layer must note which letter came before, and a head of the second must find where this letter stood last time and look one place further. Such pairs are called induction heads.`,
  source: { words: "Olsson et al. 2022", href: "https://arxiv.org/abs/2209.11895" },
  variants,
  choice: t`Mechanism of all heads`,
  pace: 0,
  share: (percent) => t`${percent} % of unseen letters right`,
  loss: nats,
  measures: crossEntropy(
    { loss: t`nats a letter`, accuracy: t`% of the letters that can be known` },
    4,
    LETTERS.length,
  ),
  caption: t`Cross-entropy of 32 new sequences a step; accuracy on 64 that are never trained on.`,
  example: (look) => ({
    given: t`letter`,
    guessed: t`next`,
    places: tokenPlaces(look, letter),
    remark: t`· is the first round, which nobody can know.`,
  }),
  headsTitle: t`The heads as they form`,
  headsCaption: t`Rows: letters that look, columns: letters that are looked at. Until you choose a head it is the one that gives most to what followed last time.`,
  pictures,
  inLayer: HEADS,
  favourite: (pictures, look) => {
    const scores = pictures.map((picture) => roleOf(picture, look).induction);
    return Math.max(0, scores.indexOf(Math.max(...scores)));
  },
  readout: (picture, look) => {
    const { previous, induction } = roleOf(picture, look);
    return t`${picture.title}: on average ${fixed(previous, 2)} to the letter before, ${fixed(induction, 2)} to what followed this letter last time.`;
  },
  sentence: ({ title, matrix }, cell) => {
    const { row, column } = cell;
    const name = (place: number) => t`${matrix.rowLabels[place]} (place ${place + 1})`;
    if (column > row)
      return t`${title}: ${name(row)} does not see ${name(column)}, which comes later.`;
    return t`${title}: ${name(row)} looks at ${name(column)}, weight ${fixed(valueAt(matrix, row, column))}.`;
  },
  table: (pictures, look) => ({
    columns: [t`head`, t`to the letter before`, t`to what followed last time`],
    rows: pictures.map((picture) => {
      const { previous, induction } = roleOf(picture, look);
      return [picture.title, fixed(previous), fixed(induction)];
    }),
  }),
};
