// A client of the site's model worker, in this process: messages are cloned as between threads.
import { type Heed, load } from "heed";
import { expect } from "vitest";
import { type ModelPort, openModel } from "../../web/src/model/model_client.js";
import { ModelError } from "../../web/src/model/model_error.js";
import { ModelHost } from "../../web/src/model/model_host.js";
import type {
  ModelClient,
  ModelErrorCode,
  ModelFiles,
  OpenOptions,
} from "../../web/src/model/model_types.js";
import type { LoadHeed } from "../../web/src/model/opened_model.js";
import type { Answered } from "../../web/src/model/wire.js";

export const heed: Heed = await load({ threads: 1 });

export interface TestPort extends ModelPort {
  terminated: boolean;
}

export function localPort(load: LoadHeed = async () => heed): TestPort {
  const port: TestPort = {
    terminated: false,
    onmessage: null,
    onerror: null,
    terminate: () => {
      port.terminated = true;
    },
    // Blobs are shared between threads, and Node's structuredClone does not know them.
    postMessage: (asked) => {
      queueMicrotask(() => !port.terminated && host.hear(asked));
    },
  };
  const answer = (message: Answered, transfer: Transferable[] = []) => {
    const data = structuredClone(message, { transfer });
    setTimeout(() => !port.terminated && port.onmessage?.({ data } as MessageEvent<Answered>), 0);
  };
  const host = new ModelHost(answer, load);
  return port;
}

/** Models that are disposed of leave their tensors to the garbage collector here, as their thread stays. */
export const openHere = (
  files: ModelFiles,
  options?: OpenOptions,
  own: Heed = heed,
): Promise<ModelClient> => openModel(files, options, () => localPort(async () => own));

/** Expects a ModelError of this code whose message has all the words. */
export async function expectModelError(
  code: ModelErrorCode,
  words: string[],
  work: () => Promise<unknown>,
): Promise<void> {
  const error = await work().then(
    () => undefined,
    (caught: unknown) => caught,
  );
  expect(error, "it should have thrown").toBeInstanceOf(ModelError);
  const { code: found, message } = error as ModelError;
  expect(found, message).toBe(code);
  for (const word of words) expect(message).toContain(word);
}
