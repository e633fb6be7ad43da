// The header of a safetensors file, read strictly: the grammar and nothing else.
//   8 bytes: length n of the header, little endian; n bytes: a JSON object; then the tensors
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
//    "__metadata__": {"key": "text"}}
// The rules and limits are those of cpp/include/heed/training/safetensors.h.
import { type Message, shown, t } from "./message.js";
import { ModelError, refuse } from "./model_error.js";
import { decodeUtf8, type Json, JsonProblem, parseJson } from "./strict_json.js";

/** Longer headers are refused before anything is allocated for them. */
export const MAX_HEADER = 25_000_000;
const MAX_TENSORS = 100_000;
const MAX_NAME = 4096;
const MAX_RANK = 8;
/** Of a tensor: its name, an object of three names, a type, and two lists with MAX_RANK + 2 numbers. */
const MAX_VALUES = MAX_TENSORS * (8 + MAX_RANK + 2);

/** Bytes of an element. */
const ELEMENT_BYTES: ReadonlyMap<string, number> = new Map(
  Object.entries({
    F64: 8,
    F32: 4,
    F16: 2,
    BF16: 2,
    I64: 8,
    I32: 4,
    I16: 2,
    I8: 1,
    U64: 8,
    U32: 4,
    U16: 2,
    U8: 1,
    BOOL: 1,
    F8_E4M3: 1,
    F8_E5M2: 1,
  }),
);

export interface TensorEntry {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Places in the file, [begin, end). Any begin: formats do not promise aligned tensors. */
  readonly begin: number;
  readonly end: number;
}

export interface SafetensorsHeader {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly metadata: ReadonlyMap<string, string>;
}

const notOne = (why: Message): never =>
  refuse("not-a-model", t`This is not a safetensors file: ${why}.`);

/** What files of other kinds begin with. */
const OTHERS: readonly (readonly [string, string])[] = [
  ["GGUF", "GGUF"],
  ["PK\u0003\u0004", "zip, PyTorch"],
  ["\u0080\u0002", "pickle"],
  ["\u0080\u0004", "pickle"],
  ["\u0089HDF", "HDF5"],
  ["\u001f\u008b", "gzip"],
];

function refuseOthers(start: Uint8Array): void {
  const letters = String.fromCharCode(...start);
  const other = OTHERS.find(([magic]) => letters.startsWith(magic));
  if (other) notOne(t`it begins as one of another kind (${other[1]})`);
}

/** The length of the header, in bytes. */
async function headerLength(file: Blob): Promise<number> {
  const start = await file.slice(0, 9).arrayBuffer();
  refuseOthers(new Uint8Array(start));
  if (start.byteLength < 9) notOne(t`${file.size} bytes are too few`);
  const length = new DataView(start).getBigUint64(0, true);
  const isHeader = new Uint8Array(start)[8] === 0x7b; // {
  if (length < 2n || length > BigInt(file.size - 8))
    notOne(t`its first 8 bytes are not the length of a header`);
  if (!isHeader) notOne(t`no header begins at byte 9`);
  if (length > BigInt(MAX_HEADER))
    refuse(
      "bad-header",
      t`The header has ${Number(length)} bytes; at most ${MAX_HEADER} are read.`,
    );
  return Number(length);
}

const isMap = (value: Json | undefined): value is ReadonlyMap<string, Json> => value instanceof Map;

const bad = (name: string, why: Message): never =>
  refuse("bad-header", t`Tensor “${shown(name)}” ${why}.`);

function readMetadata(value: Json): ReadonlyMap<string, string> {
  const metadata = new Map<string, string>();
  if (!isMap(value)) return refuse("bad-header", t`__metadata__ is not an object of texts.`);
  for (const [key, text] of value) {
    if (typeof text !== "string") refuse("bad-header", t`__metadata__ is not an object of texts.`);
    metadata.set(key, text as string);
  }
  return metadata;
}

/** A list of whole numbers; the grammar knows no others. */
function readNumbers(name: string, value: Json | undefined, most: number): readonly number[] {
  const isList = Array.isArray(value) && value.every((item) => typeof item === "number");
  if (!isList) return bad(name, t`has a shape or data_offsets that are not lists of whole numbers`);
  if (value.length > most)
    return bad(name, t`has ${value.length} extents; at most ${most} are read`);
  return value as readonly number[];
}

/** Bytes that a shape takes; null where no memory could hold them. */
function bytesOf(shape: readonly number[], elementBytes: number): number | null {
  // Zeros first: an empty tensor has no size that could overflow.
  if (shape.includes(0)) return 0;
  const bytes = shape.reduce((product, extent) => product * extent, elementBytes);
  return Number.isSafeInteger(bytes) ? bytes : null;
}

function readEntry(name: string, value: Json, data: { begin: number; size: number }): TensorEntry {
  const fields = isMap(value) ? value : bad(name, t`is not described by an object`);
  const names = [...fields.keys()].sort().join(" ");
  if (names !== "data_offsets dtype shape")
    bad(name, t`does not have exactly dtype, shape and data_offsets`);
  const dtype = fields.get("dtype");
  const elementBytes = typeof dtype === "string" ? ELEMENT_BYTES.get(dtype) : undefined;
  if (elementBytes === undefined)
    return bad(name, t`has the unknown type “${shown(String(dtype))}”`);
  const shape = readNumbers(name, fields.get("shape"), MAX_RANK);
  const offsets = readNumbers(name, fields.get("data_offsets"), MAX_RANK);
  if (offsets.length !== 2) bad(name, t`has ${offsets.length} data_offsets; there should be 2`);
  const [begin, end] = offsets as readonly [number, number];
  if (begin > end || end > data.size)
    bad(name, t`lies at bytes ${begin} to ${end} of ${data.size} bytes of data`);
  const bytes = bytesOf(shape, elementBytes);
  if (bytes === null) return bad(name, t`has a shape whose size cannot be addressed`);
  if (end - begin !== bytes)
    bad(name, t`has ${end - begin} bytes; its type and shape take ${bytes}`);
  return { name, dtype: dtype as string, shape, begin: data.begin + begin, end: data.begin + end };
}

/** Tensors fill the data one after the other. */
function checkCover(tensors: Iterable<TensorEntry>, begin: number, fileSize: number): void {
  let end = begin;
  for (const tensor of [...tensors].sort((a, b) => a.begin - b.begin || a.end - b.end)) {
    if (tensor.begin !== end) {
      const [own, before] = [tensor.begin - begin, end - begin];
      bad(tensor.name, t`begins at byte ${own} of the data; the one before it ends at ${before}`);
    }
    end = tensor.end;
  }
  if (end !== fileSize) {
    const [last, size] = [end - begin, fileSize - begin];
    refuse("bad-header", t`The tensors end at byte ${last} of ${size} bytes of data.`);
  }
}

function parseHeader(text: string): ReadonlyMap<string, Json> {
  try {
    const header = parseJson(text, { depth: 4, values: MAX_VALUES, whole: true });
    if (isMap(header)) return header;
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    throw new ModelError("bad-header", t`The header is not what safetensors has: ${error.found}.`);
  }
  return refuse("bad-header", t`The header is not an object.`);
}

/**
 * Reads the header by two slices; the tensors are not touched. Throws ModelError ("not-a-model",
 * "bad-header").
 */
export async function readHeader(file: Blob): Promise<SafetensorsHeader> {
  const length = await headerLength(file);
  const text = decodeUtf8(await file.slice(8, 8 + length).arrayBuffer());
  if (text === null) return refuse("bad-header", t`The header is not UTF-8.`);
  const header = parseHeader(text);
  if (header.size > MAX_TENSORS + 1)
    refuse(
      "bad-header",
      t`The header has ${header.size} tensors; at most ${MAX_TENSORS} are read.`,
    );
  const data = { begin: 8 + length, size: file.size - 8 - length };
  const tensors = new Map<string, TensorEntry>();
  let metadata: ReadonlyMap<string, string> = new Map();
  for (const [name, value] of header) {
    if (name.length > MAX_NAME) bad(name, t`has a name of ${name.length} letters`);
    if (name === "__metadata__") metadata = readMetadata(value);
    else tensors.set(name, readEntry(name, value, data));
  }
  checkCover(tensors.values(), data.begin, file.size);
  return { tensors, metadata };
}
