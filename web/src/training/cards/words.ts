// A classifier with attention pooling: a question picks one card of a hand.
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
  stateOf,
  type TaskWords,
} from "../words.js";
import { CARDS, LEN, nameOf, RANKS, rankOf, SUITS } from "./hands.js";
import { HEADS, variants } from "./variants.js";

/** The card of each rank in a hand, or nothing. */
function cardsOf({ tokens }: Look, hand: number): (number | undefined)[] {
  const held = tokens.slice(hand * LEN, hand * LEN + CARDS);
  return RANKS.map((_, rank) => held.find((card) => rankOf(card) === rank));
}

const QUESTIONS = RANKS.map((rank) => `${rank}?`);
/** Row by row the rank that is asked for. */
const ASKED = RANKS.map((_, rank) => rank);

function pictures(look: Look): Picture[] {
  const hands = ASKED.map((hand) => cardsOf(look, hand));
  const hidden = (row: number, column: number) => hands[row]?.[column] === undefined;
  return look.heads.map((values, n) => {
    const title = n === 0 ? t`Mean of ${HEADS} heads` : t`Head ${n}`;
    const [rowLabels, columnLabels] = [QUESTIONS, RANKS];
    const kind = kindOf(values);
    return { title, matrix: makeMatrix({ title, kind, values, rowLabels, columnLabels, hidden }) };
  });
}

export const cardsWords: TaskWords = {
  words: t`asking for a card`,
  title: t`Watch attention pooling form`,
  lead: t`A hand of ${CARDS} cards, and a question after it: “7?”. The class of the whole sequence is the suit of that one card; the others only distract. The question’s own row of weights decides what is in the sum that is classified: attention pooling, with a query that asks. Try what a mean makes of it.`,
  source: { words: "Lin et al. 2017", href: "https://arxiv.org/abs/1703.03130" },
  variants,
  choice: t`How the hand is pooled`,
  pace: 0,
  share: (percent) => t`${percent} % of unseen hands answered right`,
  loss: nats,
  measures: crossEntropy({ loss: t`nats a hand`, accuracy: t`% of the hands` }, 5, SUITS.length),
  caption: t`Cross-entropy of 64 new hands a step; accuracy on 256 that are never trained on.`,
  example: ({ targets, guesses }) => ({
    given: t`asked`,
    guessed: t`suit`,
    places: QUESTIONS.map((shown, hand) => {
      const guess = guesses[hand] ?? -1;
      return { shown, guess: nameOf(guess), state: stateOf(guess, targets[hand] ?? -1) };
    }),
    remark: t`Each question has a hand of its own.`,
  }),
  headsTitle: t`The pooling weights as they form`,
  headsCaption: t`Rows: hands, by what is asked; columns: their cards by rank, hatched where a hand has none. What a row lacks to 1 the question gives to itself. Heads may share the questions among them.`,
  pictures,
  favourite: () => 0,
  readout: (picture) => {
    const { mean, most, count } = meanAt(picture, ASKED);
    return t`${picture.title}: on average ${fixed(mean, 2)} to the card that is asked for, more than to any other in ${most} of ${count} hands.`;
  },
  sentence: ({ title, matrix }, { row, column }, look) => {
    const card = cardsOf(look, row)[column];
    if (card === undefined)
      return t`${title}: the hand asked “${QUESTIONS[row]}” has no ${RANKS[column]}.`;
    const place = look.tokens.indexOf(card, row * LEN) - row * LEN + 1;
    return t`${title}: asked “${QUESTIONS[row]}”, ${nameOf(card)} (card ${place} of ${CARDS}) has weight ${fixed(valueAt(matrix, row, column))}.`;
  },
  table: (pictures, look) => ({
    columns: [t`asked`, t`card`, ...pictures.map(({ title }) => title)],
    rows: ASKED.map((rank) => [
      QUESTIONS[rank] ?? "",
      nameOf(cardsOf(look, rank)[rank] ?? -1),
      ...pictures.map(({ matrix }) => fixed(valueAt(matrix, rank, rank))),
    ]),
  }),
};
