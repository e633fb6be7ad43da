// What a visitor asks of a race, and how it stands in the address:
// "#v=1&with=linear.longformer&lengths=256.512&past=1&onnx=1&runs=thorough". A link is input from a
// stranger: what is none of ours is left out.
export type Effort = "quick" | "thorough";

export interface RaceRequest {
  /** Ids of mechanisms, beside exact attention, which always runs. */
  mechanisms: readonly string[];
  /** Ascending. */
  lengths: readonly number[];
  /** Every token sees only itself and those before, where a mechanism has the choice. */
  causal: boolean;
  /** onnxruntime-web runs too. */
  onnx: boolean;
  effort: Effort;
}

/** What all are compared with. */
export const EXACT = "scaled_dot_product";

export const LENGTHS: readonly number[] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
export const MOST_MECHANISMS = 6;

export const DEFAULT_REQUEST: RaceRequest = {
  mechanisms: ["longformer", "reformer", "nystrom", "performer"],
  lengths: [256, 512, 1024, 2048],
  causal: false,
  onnx: false,
  effort: "quick",
};

const VERSION = "1";
const MAX_LENGTH = 1024;

const same = (a: readonly unknown[], b: readonly unknown[]) => a.join() === b.join();

/** With "#", or "" for the default. */
export function raceFragment(request: RaceRequest): string {
  const { mechanisms, lengths, causal, onnx, effort } = request;
  const fields: [string, string | null][] = [
    ["with", same(mechanisms, DEFAULT_REQUEST.mechanisms) ? null : mechanisms.join(".")],
    ["lengths", same(lengths, DEFAULT_REQUEST.lengths) ? null : lengths.join(".")],
    ["past", causal ? "1" : null],
    ["onnx", onnx ? "1" : null],
    ["runs", effort === DEFAULT_REQUEST.effort ? null : effort],
  ];
  const set = fields.filter((field): field is [string, string] => field[1] !== null);
  return set.length === 0 ? "" : `#${new URLSearchParams([["v", VERSION], ...set])}`;
}

const parts = (text: string): string[] => text.split(".").filter(Boolean);

/** `known` are the ids that may run. */
export function raceRequest(fragment: string, known: ReadonlySet<string>): RaceRequest {
  if (fragment.length > MAX_LENGTH) return DEFAULT_REQUEST;
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  if (fields.get("v") !== VERSION) return DEFAULT_REQUEST;
  const mechanisms = fields.get("with");
  const asked = new Set(parts(fields.get("lengths") ?? "").map(Number));
  const lengths = LENGTHS.filter((length) => asked.has(length));
  return {
    mechanisms:
      mechanisms === null
        ? DEFAULT_REQUEST.mechanisms
        : [...new Set(parts(mechanisms))].filter((id) => known.has(id)).slice(0, MOST_MECHANISMS),
    lengths: lengths.length > 0 ? lengths : DEFAULT_REQUEST.lengths,
    causal: fields.get("past") === "1",
    onnx: fields.get("onnx") === "1",
    effort: fields.get("runs") === "thorough" ? "thorough" : "quick",
  };
}
