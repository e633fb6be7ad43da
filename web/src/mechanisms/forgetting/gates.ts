// Forget gates over one sentence: every word lets most of the past through, one of them hardly any.
import { floats } from "../../lib/call.js";
import { COUNT, NOTHING, type Problem, QKV, WORDS } from "../transformer_xl/terms.js";

export interface Gates {
  /** Of every word but one, and of that one; 0 to 1. */
  usual: number;
  one: number;
  /** Which one. */
  word: number;
}
export const RESTING: Gates = { usual: 0.9, one: 0.05, word: WORDS.indexOf("because") };

export const gateOf = ({ usual, one, word }: Gates, at: number): number =>
  at === word ? one : usual;

export function gates(chosen: Gates): Problem {
  const logGates = floats(
    WORDS.map((_, at) => Math.log(gateOf(chosen, at))),
    [1, 1, COUNT],
  );
  const { q, k, v } = QKV;
  return {
    id: "forgetting",
    params: {},
    inputs: { q, k, v, logGates },
    terms: [
      {
        symbol: "q·k / √d",
        tone: "ink",
        inputs: {
          q,
          k,
          v,
          logGates: floats(
            WORDS.map(() => 0),
            [1, 1, COUNT],
          ),
        },
      },
      { symbol: "Σ log f", tone: "key", inputs: { q, k: NOTHING, v, logGates } },
    ],
  };
}
