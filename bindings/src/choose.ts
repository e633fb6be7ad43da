import { fail, HeedError } from "./errors.js";
import type { Features } from "./features.js";
import type { Choice, Variant } from "./heed.js";
import type { ThreadLimit } from "./platform.js";

/** More threads than this were never seen to help, and each costs a worker. */
const MOST_THREADS = 64;

/** What the caller asked for, checked. */
export interface Wish {
  threads: number | "auto";
  simd: "auto" | "relaxed" | "plain";
  /** An own WebAssembly file was given: "auto" then means the plainest variant. */
  ownFile: boolean;
}

export function checkWish(threads: unknown, simd: unknown, ownFile: boolean): Wish {
  if (threads !== undefined && threads !== "auto") {
    if (typeof threads !== "number") fail("option", "threads", threads, '"auto" or a number');
    if (!Number.isInteger(threads) || threads < 1 || threads > MOST_THREADS) {
      fail("range", "threads", threads, `"auto" or a whole number from 1 to ${MOST_THREADS}`);
    }
  }
  if (simd !== undefined && simd !== "auto" && simd !== "relaxed" && simd !== "plain") {
    fail("option", "simd", simd, '"auto", "relaxed" or "plain"');
  }
  return { threads: threads ?? "auto", simd: simd ?? "auto", ownFile };
}

function checkSimd(features: Features): void {
  if (features.simd) return;
  throw new HeedError(
    "unsupported",
    "heed: this engine has no SIMD, exceptions or atomics in WebAssembly; Chrome 95, Firefox 100, Safari 16.4, Node 17 and newer have all three",
  );
}

function chooseSimd(wish: Wish, features: Features): { simd: "plain" | "relaxed"; reason: string } {
  checkSimd(features);
  if (wish.simd === "plain") return { simd: "plain", reason: "plain SIMD was asked for" };
  if (wish.simd === "relaxed") {
    if (features.relaxed) return { simd: "relaxed", reason: "relaxed SIMD was asked for" };
    throw new HeedError(
      "unsupported",
      'simd: "relaxed" needs an engine with relaxed SIMD; use "auto"',
    );
  }
  if (wish.ownFile) return { simd: "plain", reason: "an own WebAssembly file was given" };
  return features.relaxed
    ? { simd: "relaxed", reason: "the engine has relaxed SIMD" }
    : { simd: "plain", reason: "the engine has no relaxed SIMD" };
}

function chooseThreads(wish: Wish, features: Features, limit: ThreadLimit): ThreadLimit {
  if (wish.threads === 1) return { count: 1, reason: "one thread was asked for" };
  if (wish.threads === "auto" && wish.ownFile) {
    return { count: 1, reason: "an own WebAssembly file was given" };
  }
  // Where a page may not have threads, engines hide that they could: the page's reason is the true one.
  if (limit.count === 1) return limit;
  if (!features.threads) return { count: 1, reason: "the engine has no WebAssembly threads" };
  if (wish.threads === "auto") {
    const count = Math.min(limit.count, MOST_THREADS);
    return { count, reason: limit.reason };
  }
  return { count: wish.threads, reason: `${wish.threads} threads were asked for` };
}

const variantOf = (simd: "plain" | "relaxed", threads: number): Variant =>
  `${simd === "plain" ? "simd" : "relaxed"}${threads > 1 ? "-threads" : ""}` as Variant;

/** The variants to try, best first. Only "auto" may fall back to a lesser one. */
export function choose(wish: Wish, features: Features, limit: ThreadLimit): Choice[] {
  const simd = chooseSimd(wish, features);
  const threads = chooseThreads(wish, features, limit);
  const make = (
    word: "plain" | "relaxed",
    count: number,
    why: Partial<Choice["reasons"]>,
  ): Choice => ({
    variant: variantOf(word, count),
    threads: count,
    simd: word,
    reasons: { threads: threads.reason, simd: simd.reason, ...why },
  });
  const choices = [make(simd.simd, threads.count, {})];
  const mayBeSingle = wish.threads === "auto" && threads.count > 1;
  const single = mayBeSingle ? { threads: "the threads could not be started" } : {};
  if (mayBeSingle) choices.push(make(simd.simd, 1, single));
  if (wish.simd === "auto" && simd.simd === "relaxed") {
    const why = { ...single, simd: "relaxed SIMD could not be used" };
    choices.push(make("plain", mayBeSingle ? 1 : threads.count, why));
  }
  return choices;
}

/** The only variant of an entry that holds one. */
export function chooseSingle(wish: Wish, features: Features, reason: string): Choice[] {
  checkSimd(features);
  if (wish.simd === "relaxed") throw new HeedError("unsupported", `simd: ${reason}`);
  return [
    { variant: "simd", threads: 1, simd: "plain", reasons: { threads: reason, simd: reason } },
  ];
}
