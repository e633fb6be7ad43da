// A text of passages about three topics, each coming twice: what a query needs stands near it, in the other
// passage of its topic, and on a few tokens that all look at, as first tokens are in trained models.
import { floats } from "../../lib/call.js";
import { t } from "../../lib/messages.js";
import { hashText, normalSource } from "../../lib/random.js";

interface Passage {
  name: string;
  /** Its topic's place among the dimensions; the opening has none. */
  topic: number | null;
  length: number;
}

export const PASSAGES: readonly Passage[] = [
  { name: t`start`, topic: null, length: 4 },
  { name: t`sea`, topic: 0, length: 12 },
  { name: t`bread`, topic: 1, length: 10 },
  { name: t`trees`, topic: 2, length: 12 },
  { name: t`sea`, topic: 0, length: 8 },
  { name: t`bread`, topic: 1, length: 8 },
  { name: t`trees`, topic: 2, length: 10 },
];

export const TOKENS = PASSAGES.reduce((sum, { length }) => sum + length, 0);
export const DIM = 16;
const TOPICS = 3;
/** The dimension that every query asks for, and how much some keys have of it. */
const COMMON = TOPICS;
const WANTED: ReadonlyMap<number, number> = new Map([
  [0, 4],
  [9, 3],
  [31, 3],
]);
/** Those keys, from 1. */
export const WANTED_TOKENS: readonly number[] = [...WANTED.keys()].map((token) => token + 1);
const ASKED = 3;
const TOPIC_SIZE = 2.6;
/** What a token has of its own resembles that of the token before. */
const LIKENESS = 0.7;
const OWN = 0.75;

/** The passage of each token. */
export const PASSAGE_OF: readonly Passage[] = PASSAGES.flatMap((passage) =>
  Array<Passage>(passage.length).fill(passage),
);

/** What tokens are like beside their topic, [TOKENS, DIM - COMMON - 1]. */
const ownParts = (() => {
  const normal = normalSource(hashText("a text of passages"));
  const width = DIM - COMMON - 1;
  const all = new Float32Array(TOKENS * width);
  for (let at = 0; at < all.length; at++) {
    const before = all[at - width];
    const fresh = Math.sqrt(1 - LIKENESS ** 2) * normal();
    all[at] = before === undefined ? normal() : LIKENESS * before + fresh;
  }
  return all;
})();

function vectors(common: (token: number) => number) {
  const width = DIM - COMMON - 1;
  const rows = PASSAGE_OF.map(({ topic }, token) => {
    const row = new Float32Array(DIM);
    if (topic !== null) row[topic] = TOPIC_SIZE;
    row[COMMON] = common(token);
    for (let d = 0; d < width; d++)
      row[COMMON + 1 + d] = OWN * (ownParts[token * width + d] as number);
    return row;
  });
  return floats(
    rows.flatMap((row) => [...row]),
    [1, 1, TOKENS, DIM],
  );
}

export const Q = vectors(() => ASKED);
export const K = vectors((token) => WANTED.get(token) ?? 0);
/** Unit vectors: outputs are then rows of weights. */
export const UNIT = floats(
  Array.from({ length: TOKENS * TOKENS }, (_, at) =>
    Number(Math.floor(at / TOKENS) === at % TOKENS),
  ),
  [1, 1, TOKENS, TOKENS],
);
