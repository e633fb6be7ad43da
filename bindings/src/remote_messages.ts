import type { HeedErrorCode } from "./errors.js";
import type { Build, Choice } from "./heed.js";
import type { LoadProgress } from "./load_options.js";
import type { Mechanism, Parameter } from "./registry.js";

/** Number of a value that stays in the worker. */
export type Handle = number;

/** Names the functions and fields of an object, as the other side rebuilds it. */
export interface Face {
  readonly functions: readonly string[];
  /** Functions of functions: `attention.vjp`. */
  readonly inner: Readonly<Record<string, readonly string[]>>;
  readonly constructors: readonly string[];
  readonly fields: readonly string[];
}

/** What `load()` chose in the worker, and the lists that never change. */
export interface Loaded {
  readonly version: string;
  readonly build: Build;
  readonly choice: Choice;
  readonly mechanisms: readonly Mechanism[];
  readonly parameters: readonly Parameter[];
  readonly face: Face;
}

/** Load options in a form that can be sent. */
export interface SentOptions {
  readonly threads?: unknown;
  readonly simd?: unknown;
  readonly wasmUrl?: string | Readonly<Record<string, string>> | undefined;
  readonly wasmBinary?: unknown;
  readonly module?: unknown;
}

/** One call: of a function, a constructor or a field of the instance or of an object. */
export interface Call {
  /** 0 is the instance. */
  readonly target: Handle;
  readonly how: "call" | "construct" | "get";
  /** Empty for a target that is itself a function. */
  readonly path: readonly string[];
  readonly args: readonly unknown[];
}

export type ToWorker =
  | { readonly kind: "load"; readonly options: SentOptions; readonly progress: boolean }
  | { readonly kind: "call"; readonly call: Call }
  | { readonly kind: "release"; readonly handle: Handle };

export interface SentError {
  readonly code: HeedErrorCode;
  readonly message: string;
}

export type FromWorker =
  | { readonly kind: "loaded"; readonly loaded: Loaded }
  | { readonly kind: "progress"; readonly progress: LoadProgress }
  | { readonly kind: "result"; readonly value: unknown }
  | { readonly kind: "error"; readonly error: SentError };

/** The way from one side to the other. */
export interface Port<Sent> {
  send(message: Sent, transfer: ArrayBuffer[]): void;
}
