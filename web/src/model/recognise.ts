// Which of the files that were dropped is what, by what they begin with: names are often changed.

export type Role = "weights" | "tokenizer" | "config";

/** Bytes of a JSON file that are looked at. */
const HEAD = 2 ** 16;

const TOKENIZER = /"added_tokens"\s*:|"pre_tokenizer"\s*:/;
const CONFIG = /"(?:model_type|architectures|num_attention_heads|n_head)"\s*:/;

/** null for a file of no use, such as merges.txt. */
export async function roleOf(file: File): Promise<Role | null> {
  const bytes = new Uint8Array(await file.slice(0, HEAD).arrayBuffer());
  // A header of less than 2^32 bytes, which begins with a brace: JSON has no zeros.
  if (bytes[8] === 0x7b && bytes.subarray(4, 8).every((byte) => byte === 0)) return "weights";
  const text = new TextDecoder().decode(bytes);
  if (text.trimStart().startsWith("{")) {
    if (TOKENIZER.test(text)) return "tokenizer";
    if (CONFIG.test(text)) return "config";
  }
  // What is called so is opened, and refused with what is wrong with it.
  return /\.(?:safetensors|gguf|bin|pt|pth|h5|onnx)$/i.test(file.name) ? "weights" : null;
}

export interface Recognised {
  readonly files: ReadonlyMap<Role, File>;
  /** Files that are of no use, or are the second of their kind. */
  readonly others: readonly File[];
}

export async function recognise(all: readonly File[]): Promise<Recognised> {
  const files = new Map<Role, File>();
  const others: File[] = [];
  for (const file of all) {
    const role = await roleOf(file);
    if (role === null || files.has(role)) others.push(file);
    else files.set(role, file);
  }
  return { files, others };
}
