import { HeedError } from "./errors.js";
import type { Handle } from "./remote_messages.js";

/** Whoever made objects that live in its worker. */
export interface Owner {
  /** Counts the workers that it has had: objects die with theirs. */
  readonly generation: number;
  readonly closed: boolean;
}

interface Home {
  readonly owner: Owner;
  readonly generation: number;
  readonly handle: Handle;
}

const homes = new WeakMap<object, Home>();

/** Notes that `object` stands for `handle` in the worker that `owner` has now. */
export function settle(object: object, owner: Owner, handle: Handle): void {
  homes.set(object, { owner, generation: owner.generation, handle });
}

/** Whether the worker that an object lived in has ended. */
export function isGone(object: object): boolean {
  const home = homes.get(object);
  return home === undefined || home.owner.closed || home.owner.generation !== home.generation;
}

/** The number of an object of the worker; undefined for anything else. Throws when it is gone. */
export function handleOf(owner: Owner, name: string, object: object): Handle | undefined {
  const home = homes.get(object);
  if (home === undefined) return undefined;
  if (home.owner !== owner) {
    throw new HeedError("option", `${name}: it lives in the worker of another spawn()`);
  }
  if (isGone(object)) {
    throw new HeedError(
      "disposed",
      `${name}: it lived in a worker that has ended; after an abort or a crash make it again`,
    );
  }
  return home.handle;
}
