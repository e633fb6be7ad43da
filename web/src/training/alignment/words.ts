// Reversing and sorting: which letter of the word the decoder looks at for each that it writes.
import { fixed } from "../../lib/format.js";
import { makeMatrix } from "../../lib/make_matrix.js";
import { valueAt } from "../../lib/matrix.js";
import { t } from "../../lib/messages.js";
import type { Look } from "../session.js";
import {
  crossEntropy,
  kindOf,
  meanAt,
  nats,
  type Picture,
  type TaskWords,
  tokenPlaces,
} from "../words.js";
import { LEN, LETTERS, START } from "./sequences.js";
import { variants } from "./variants.js";

const letter = (token: number): string => (token === START ? "▸" : (LETTERS[token] ?? ""));

/** In the order in which a look has them. */
function pictures({ heads, tokens, guesses }: Look): Picture[] {
  const read = tokens.map(letter);
  const written = guesses.map(letter);
  const before = ["▸", ...written.slice(0, -1)];
  const later = (row: number, column: number) => column > row;
  const kinds = [
    { title: t`Decoder, to the word`, rowLabels: written, columnLabels: read },
    { title: t`Decoder, to itself`, rowLabels: before, columnLabels: before, hidden: later },
    { title: t`Encoder, to itself`, rowLabels: read, columnLabels: read },
  ];
  return kinds.map((given, n) => {
    const values = heads[n] as Float32Array;
    return { title: given.title, matrix: makeMatrix({ ...given, kind: kindOf(values), values }) };
  });
}

/** The alignment that is right: for each letter to write its place in the word. */
const alignmentOf = ({ tokens, targets }: Look): number[] =>
  targets.map((target) => tokens.indexOf(target));

const shared: Omit<TaskWords, "words" | "title" | "lead"> = {
  source: { words: "Bahdanau et al. 2015", href: "https://arxiv.org/abs/1409.0473" },
  variants,
  choice: t`Mechanism from the decoder to the word`,
  pace: 0,
  share: (percent) => t`${percent} % of the letters of unseen words right`,
  loss: nats,
  measures: crossEntropy(
    { loss: t`nats a letter`, accuracy: t`% of the letters` },
    4,
    LETTERS.length,
  ),
  caption: t`Cross-entropy of 32 new words a step, each letter given those before it; accuracy on 32 that are never trained on, where the model goes on from what it wrote itself.`,
  example: (look) => ({
    given: t`word`,
    guessed: t`written`,
    places: tokenPlaces(look, letter),
    remark: "",
  }),
  headsTitle: t`The alignment as it forms`,
  headsCaption: t`Rows: letters that are written, or that look; columns: letters that are looked at; ▸ is the beginning. One layer and one head each.`,
  pictures,
  favourite: () => 0,
  readout: (picture, look) => {
    if (picture.matrix.columnLabels[0] === "▸") return t`${picture.title}: what it wrote so far.`;
    const { mean, most, count } = meanAt(picture, alignmentOf(look));
    return t`${picture.title}: on average ${fixed(mean, 2)} to the letter that belongs there, more than to any other in ${most} of ${count} rows.`;
  },
  sentence: ({ title, matrix }, cell) => {
    const { row, column } = cell;
    const weight = fixed(valueAt(matrix, row, column));
    const [from, to] = [matrix.rowLabels[row], matrix.columnLabels[column]];
    if (matrix.hidden(row, column))
      return t`${title}: ${from} (place ${row + 1}) does not see place ${column + 1}, which comes later.`;
    return t`${title}: ${from} (place ${row + 1}) looks at ${to} (place ${column + 1}), weight ${weight}.`;
  },
  table: ([cross], look) => ({
    columns: [t`place`, t`written`, t`belongs there`, t`weight of its letter`],
    rows: alignmentOf(look).map((column, row) => [
      String(row + 1),
      letter(look.guesses[row] ?? -1),
      letter(look.targets[row] ?? -1),
      cross ? fixed(valueAt(cross.matrix, row, column)) : "",
    ]),
  }),
};

export const reverseWords: TaskWords = {
  ...shared,
  words: t`reversing`,
  title: t`Watch an alignment form: reversing`,
  lead: t`An encoder reads a word of ${LEN} letters, and a decoder writes it backwards. For each letter that it writes it must look at the right one of the word: the weights become a diagonal that runs the other way. Which letters there are does not matter, only where they stand.`,
};

export const sortWords: TaskWords = {
  ...shared,
  words: t`sorting`,
  title: t`Watch an alignment form: sorting`,
  lead: t`An encoder reads a word of ${LEN} letters, and a decoder writes them in the order of the alphabet. For each letter that it writes it must find the next one in the word, wherever it stands: the weights become a permutation, with one strong cell in each row and each column.`,
};
