// What the page and the worker say to each other.
import type { Message } from "./message.js";
import type {
  Encoded,
  GeneratedToken,
  GenerateRequest,
  ModelErrorCode,
  ModelFacts,
  ModelFiles,
  OpenProgress,
  Piece,
  RunRequest,
  RunResult,
} from "./model_types.js";

/** Name, argument and value of each call. */
export interface Calls {
  open: { given: ModelFiles; gives: ModelFacts };
  encode: { given: string; gives: Encoded };
  decode: { given: readonly number[]; gives: string };
  pieces: { given: readonly number[]; gives: readonly Piece[] };
  run: { given: Omit<RunRequest, "signal">; gives: RunResult };
  /** Gives the number of the generation. */
  start: { given: Omit<GenerateRequest, "signal">; gives: number };
  /** null after the last token. */
  next: { given: number; gives: GeneratedToken | null };
  end: { given: number; gives: null };
}

export type CallName = keyof Calls;

export type Asked =
  | { [N in CallName]: { call: number; name: N; given: Calls[N]["given"] } }[CallName]
  /** The call of this number is no longer wanted. */
  | { cancel: number };

export type Answered = { call: number } & (
  | { value: Calls[CallName]["gives"] }
  | { fault: { code: ModelErrorCode; said: Message } }
  | { progress: OpenProgress }
);
