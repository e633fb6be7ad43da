// The task: a hand of cards of different ranks, and a question after it, "the 7?". The answer is the suit
// of that card: one token decides, and the others only distract.
import type { TrainBatch } from "heed/training";

/** The variation selector keeps phones from drawing them as pictures. */
export const SUITS = ["♠", "♥", "♦", "♣"].map((suit) => `${suit}\uFE0E`);
export const RANKS = ["2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K", "A"];
/** Cards of a hand: a rank is missing. */
export const CARDS = RANKS.length - 1;
/** Of a hand with its question. */
export const LEN = CARDS + 1;

/** Tokens: the cards rank by rank, then questions, then the suits as answers. */
const QUESTIONS = RANKS.length * SUITS.length;
const ANSWERS = QUESTIONS + RANKS.length;
export const VOCABULARY = ANSWERS + SUITS.length;

export const rankOf = (card: number): number => Math.floor(card / SUITS.length);
export const suitOf = (card: number): number => card % SUITS.length;
export const questionOf = (rank: number): number => QUESTIONS + rank;
export const answerOf = (suit: number): number => ANSWERS + suit;
/** The name of a card, a question ("7?") or an answer. */
export function nameOf(token: number): string {
  if (token >= ANSWERS) return SUITS[token - ANSWERS] ?? "";
  if (token >= QUESTIONS) return `${RANKS[token - QUESTIONS]}?`;
  return `${RANKS[rankOf(token)]}${SUITS[suitOf(token)]}`;
}

/** Hands with their questions, one after the other; only the question has a target. */
export interface Hands extends TrainBatch {
  batch: number;
  tokens: Int32Array;
  targets: Int32Array;
}

/** Cards of different ranks in random order. */
function drawHand(next: () => number): number[] {
  const ranks = RANKS.map((_, rank) => rank);
  for (let i = 0; i < CARDS; i++) {
    const j = i + Math.floor(next() * (ranks.length - i));
    [ranks[i], ranks[j]] = [ranks[j] as number, ranks[i] as number];
  }
  return ranks
    .slice(0, CARDS)
    .map((rank) => rank * SUITS.length + Math.floor(next() * SUITS.length));
}

/** The rank asked for is that of a card at random, or the given one, which the hand then has. */
export function drawHands(
  batch: number,
  next: () => number,
  asked?: (hand: number) => number,
): Hands {
  const tokens = new Int32Array(batch * LEN);
  const targets = new Int32Array(batch * LEN).fill(-1);
  for (let b = 0; b < batch; ) {
    const hand = drawHand(next);
    const rank = asked?.(b) ?? rankOf(hand[Math.floor(next() * CARDS)] as number);
    const card = hand.find((held) => rankOf(held) === rank);
    if (card === undefined) continue;
    tokens.set([...hand, questionOf(rank)], b * LEN);
    targets[b * LEN + CARDS] = answerOf(suitOf(card));
    b++;
  }
  return { batch, tokens, targets };
}
