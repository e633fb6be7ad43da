/// <reference types="svelte" />
/// <reference types="vite/client" />

declare module "virtual:formulas" {
  /** MathML by name. */
  export const formulas: Readonly<Record<string, string>>;
}

declare module "virtual:messages/de" {
  /** German messages by the hash of the English one. */
  export const messages: Readonly<Record<string, string>>;
}

declare module "virtual:messages/de/mechanisms" {
  /** By the mechanism's id: crafted pages alone have one. */
  export const tables: Readonly<
    Record<string, () => Promise<{ messages: Readonly<Record<string, string>> }>>
  >;
}

declare module "virtual:messages/de/benchmarks" {
  /** Those that only the benchmarks say. */
  export const messages: Readonly<Record<string, string>>;
}

declare module "virtual:messages/de/edge_cases" {
  export const messages: Readonly<Record<string, string>>;
}

declare module "virtual:messages/de/gallery" {
  export const messages: Readonly<Record<string, string>>;
}

declare module "virtual:messages/de/model" {
  /** Those that only the page of the language model says. */
  export const messages: Readonly<Record<string, string>>;
}

declare module "virtual:messages/de/race" {
  export const messages: Readonly<Record<string, string>>;
}

declare module "virtual:messages/de/training" {
  /** Those that only the training page says. */
  export const messages: Readonly<Record<string, string>>;
}

declare module "virtual:symbols" {
  /** MathML of a parameter's letter by the parameter's name. */
  export const symbols: Readonly<Record<string, string>>;
}

declare module "virtual:mechanisms" {
  /** The rows of the one list, in its order. */
  export const mechanisms: readonly {
    readonly id: string;
    readonly family: string;
    readonly title: string;
    readonly year: number;
    readonly source: string;
    readonly summary: string;
    readonly cost: string;
    /** Has a page made for it, beside the general one. */
    readonly crafted: boolean;
    /** Can race against exact attention. */
    readonly races: boolean;
  }[];
}

declare module "virtual:cost_examples" {
  /** examples.inc: extents as products of symbols, and what single rows need. */
  export const costExamples: {
    readonly extents: Readonly<Record<string, string>>;
    readonly rows: Readonly<
      Record<
        string,
        {
          readonly inputs: readonly string[];
          readonly extents: Readonly<Record<string, string>>;
          readonly params: Readonly<Record<string, string>>;
        }
      >
    >;
  };
}

declare module "virtual:conformance" {
  /** Suites of cases that outside projects published, as docs/conformance.md counts them. */
  export const conformance: readonly {
    readonly suite: string;
    readonly from: string;
    readonly cases: number;
    readonly pass: number;
    /** What does not pass; empty: nothing. */
    readonly notYet: string;
  }[];
}

declare module "virtual:benchmarks" {
  export const benchmarks: import("./benchmarks/results.js").Benchmarks;
}
