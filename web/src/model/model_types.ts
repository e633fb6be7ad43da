// What a page sees of a language model that a visitor opened: `openModel` of model_client.ts gives one.
// The model lives in a worker; the files never leave the browser.

/** The files, as dropped. Weights are read slice by slice; a Blob is never held as a whole. */
export interface ModelFiles {
  /** safetensors with the tensor names of Hugging Face's GPT-2 or Llama. */
  readonly weights: Blob;
  /** tokenizer.json. Without one, a text is the numbers of its tokens: "464 2068 7586". */
  readonly tokenizer?: Blob | undefined;
  /** config.json: heads, epsilon, rotation. GPT-2 does without. */
  readonly config?: Blob | undefined;
}

/** How far opening has come. `fraction` is in [0, 1] of that stage. */
export interface OpenProgress {
  readonly stage: "engine" | "header" | "tokenizer" | "weights";
  readonly fraction: number;
}

export interface OpenOptions {
  readonly onProgress?: ((progress: OpenProgress) => void) | undefined;
  /** Aborting ends the worker; the promise rejects with the code "aborted". */
  readonly signal?: AbortSignal | undefined;
}

export interface ModelFacts {
  readonly style: "gpt2" | "llama";
  readonly numLayers: number;
  readonly numHeads: number;
  /** Equal to numHeads without grouped queries. */
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly embedDim: number;
  /** Rows of the embedding: ids are in [0, vocabSize). */
  readonly vocabSize: number;
  /** The most positions; null where no file says so. */
  readonly contextLength: number | null;
  /** Numbers in the tensors that are used; a tied head counts once. */
  readonly numParameters: number;
  /** As stored, of most of the weights: "F32", "BF16", ... */
  readonly dtype: string;
  readonly hasTokenizer: boolean;
  /** Tokens after which `generate` ends (`eos_token_id`). */
  readonly endTokens: readonly number[];
}

/** A token of an encoded text. */
export interface Piece {
  readonly id: number;
  /**
   * What the token stands for, spaces included. A token that holds only a part of a character has its
   * bytes in hexadecimal, "E2 82"; `part` is true then.
   */
  readonly text: string;
  readonly part: boolean;
  /** Added by the tokenizer (a beginning of the text), or a marker such as <|endoftext|>. */
  readonly special: boolean;
  /**
   * UTF-16 places in `Encoded.text`, [start, end), of the characters that the token's bytes touch: tokens
   * that share a character overlap; a token that is not from the text has start == end.
   */
  readonly start: number;
  readonly end: number;
}

export interface Encoded {
  /** What was encoded: the text after the tokenizer's normaliser; lone surrogates are U+FFFD. */
  readonly text: string;
  readonly ids: readonly number[];
  /** One for each id. */
  readonly pieces: readonly Piece[];
}

export interface Head {
  readonly layer: number;
  readonly head: number;
}

export interface RunRequest {
  /** At least one. */
  readonly ids: readonly number[];
  /** Heads whose output counts as zero. Default none. */
  readonly pruned?: readonly Head[] | undefined;
  /** Layers whose weights are wanted. Default "none". Beyond 512 MB they are refused ("too-long"). */
  readonly heads?: "all" | "none" | readonly number[] | undefined;
  /** How many of the likeliest next tokens, at each position. Default 5; 0 leaves them out. */
  readonly topK?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The weights of one layer, as softmax left them. */
export interface LayerHeads {
  readonly layer: number;
  /** [numHeads, len, len] in row-major order; rows are queries; the future is 0. */
  readonly weights: Float32Array;
  /** [len, len]: the mean of its heads. */
  readonly mean: Float32Array;
}

export interface RunResult {
  readonly len: number;
  /** [len - 1]: -ln of the probability that position i gave to the token at i + 1. */
  readonly losses: Float32Array;
  readonly topK: number;
  /** [len, topK], likeliest first; of equals the smaller id. */
  readonly topIds: Int32Array;
  /** [len, topK] */
  readonly topProbabilities: Float32Array;
  /** Of the layers that were asked for, in ascending order. */
  readonly heads: readonly LayerHeads[];
  readonly milliseconds: number;
}

export interface GenerateRequest {
  /** The prompt; at least one. */
  readonly ids: readonly number[];
  readonly maxTokens: number;
  /** 0 takes the likeliest. Default 1. */
  readonly temperature?: number | undefined;
  /** Only the likeliest so many are drawn from; absent: all. */
  readonly topK?: number | undefined;
  /** The same seed draws the same tokens. Default 0. */
  readonly seed?: number | undefined;
  readonly pruned?: readonly Head[] | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface GeneratedToken {
  readonly id: number;
  /** Text that is complete with this token: "" while a character lacks bytes. */
  readonly text: string;
  /** What the model gave it, at temperature 1, before topK. */
  readonly probability: number;
  /** Its place in the sequence; the query that chose it stands one before. */
  readonly position: number;
  /** [numLayers, numHeads, position]: what that query looked at. */
  readonly attention: Float32Array;
  readonly milliseconds: number;
}

/** One call at a time is computed; others wait in their order. All reject with `ModelError`. */
export interface ModelClient {
  readonly facts: ModelFacts;
  /** Beginning-of-text tokens are added where the tokenizer's template has them. */
  encode(text: string): Promise<Encoded>;
  /** Bytes that are no UTF-8 become U+FFFD; special tokens are left out. */
  decode(ids: readonly number[]): Promise<string>;
  /** The pieces of ids that were not encoded from a text; start and end are in the decoded text. */
  pieces(ids: readonly number[]): Promise<readonly Piece[]>;
  run(request: RunRequest): Promise<RunResult>;
  /** A token is computed when it is asked for; ending the loop early frees the cache. */
  generate(request: GenerateRequest): AsyncGenerator<GeneratedToken, void, void>;
  /** Ends the worker; calls that wait reject with "disposed". May be called again. */
  dispose(): void;
}

/** What a `ModelError` is about. */
export type ModelErrorCode =
  /** Not what its name says: no safetensors header, no JSON, not UTF-8. */
  | "not-a-model"
  /** A header that breaks the format's rules: offsets, sizes, types, names. */
  | "bad-header"
  /** A good file of a model that this page does not know, or of a tensor that it does not expect. */
  | "unknown-model"
  /** Something is needed that no file says. */
  | "missing"
  /** Sizes of the files that do not fit each other. */
  | "mismatch"
  | "bad-weights"
  | "bad-config"
  | "bad-tokenizer"
  /** An argument of a call. */
  | "bad-request"
  /** More tokens than the model has positions, or than fit into memory. */
  | "too-long"
  | "memory"
  | "aborted"
  | "timeout"
  | "disposed"
  /** The worker ended, or failed in a way that nobody foresaw. */
  | "crashed";
