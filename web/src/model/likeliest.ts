// From logits to tokens.
import { t } from "./message.js";
import { refuse } from "./model_error.js";

export interface LogitRow {
  readonly logits: Float32Array;
  readonly top: number;
  /** Of exp(logit - top), in float64. */
  readonly sum: number;
}

/** Throws ModelError ("bad-weights") where a logit is not finite; `position` says which row it was. */
export function readLogits(logits: Float32Array, position: number): LogitRow {
  const top = logits.reduce((most, logit) => Math.max(most, logit), -Infinity);
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - top);
  if (Number.isFinite(top) && Number.isFinite(sum)) return { logits, top, sum };
  return refuse(
    "bad-weights",
    t`What the model predicts after token ${position + 1} is not finite: these weights do not fit this computation.`,
  );
}

export const probabilityOf = ({ logits, top, sum }: LogitRow, id: number): number =>
  Math.exp((logits[id] as number) - top) / sum;

/** -ln of the probability, which does not round to 0 first. */
export const lossOf = ({ logits, top, sum }: LogitRow, id: number): number =>
  Math.log(sum) - ((logits[id] as number) - top);

/** The ids of the k largest logits, largest first; of equals the smaller id. */
export function topIds({ logits }: LogitRow, k: number): number[] {
  const ids: number[] = [];
  const least = () => logits[ids.at(-1) as number] as number;
  for (let id = 0; id < logits.length; id++) {
    const logit = logits[id] as number;
    if (ids.length === k && !(k > 0 && logit > least())) continue;
    if (ids.length === k) ids.pop();
    let at = ids.length;
    while (at > 0 && (logits[ids[at - 1] as number] as number) < logit) at--;
    ids.splice(at, 0, id);
  }
  return ids;
}

export interface Drawing {
  /** 0 takes the likeliest. */
  readonly temperature: number;
  /** null: all. */
  readonly topK: number | null;
  /** Uniform in [0, 1). */
  readonly uniform: () => number;
}

/** One token, drawn by its probability at a temperature. */
export function drawToken(row: LogitRow, { temperature, topK, uniform }: Drawing): number {
  if (temperature === 0) return topIds(row, 1)[0] as number;
  const { logits, top } = row;
  const ids = topK === null ? logits.keys() : topIds(row, topK).values();
  const chosen = [...ids];
  const parts = chosen.map((id) => Math.exp(((logits[id] as number) - top) / temperature));
  let rest = uniform() * parts.reduce((a, b) => a + b, 0);
  const at = parts.findIndex((part) => {
    rest -= part;
    return rest < 0;
  });
  // What rounding leaves over goes to the likeliest.
  return at < 0 ? (topIds(row, 1)[0] as number) : (chosen[at] as number);
}
