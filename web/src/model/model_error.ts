import { inEnglish, type Message } from "./message.js";
import type { ModelErrorCode } from "./model_types.js";

/** What every call of a `ModelClient` rejects with. */
export class ModelError extends Error {
  readonly code: ModelErrorCode;
  /** What happened, for whoever knows the language of the reader. */
  readonly said: Message;

  /** `message` is `said` in the reader's language; default English. */
  constructor(code: ModelErrorCode, said: Message, message: string = inEnglish(said)) {
    super(message);
    this.name = "ModelError";
    this.code = code;
    this.said = said;
  }
}

export function refuse(code: ModelErrorCode, said: Message): never {
  throw new ModelError(code, said);
}
