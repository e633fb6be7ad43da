import { readFileSync } from "node:fs";

/** A tensor of an ONNX test file; booleans are 0 and 1, 64-bit integers become numbers. */
export interface OnnxTensor {
  name: string;
  dtype: "float32" | "float16" | "float64" | "int64" | "bool";
  shape: number[];
  data: number[];
}

export interface FileEntry {
  file: string;
  name: string;
  dtype: string;
  dims: number[];
}

export interface Case {
  case: string;
  opset: Record<string, number>;
  nodes: {
    op: string;
    domain: string;
    inputs: string[];
    outputs: string[];
    attrs: Record<string, number>;
  }[];
  inputs: FileEntry[];
  outputs: FileEntry[];
}

export const readManifest = (folder: string): Case[] =>
  JSON.parse(readFileSync(`${folder}/manifest.json`, "utf8")) as Case[];

// TensorProto in Protocol Buffers: every field is a varint tag (number << 3 | wire type), then its value.
const DIMS = 1;
const DATA_TYPE = 2;
const NAME = 8;
const RAW_DATA = 9;

const DTYPES: Record<number, OnnxTensor["dtype"]> = {
  1: "float32",
  7: "int64",
  9: "bool",
  10: "float16",
  11: "float64",
};

class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get done(): boolean {
    return this.#at >= this.#bytes.length;
  }

  varint(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#bytes[this.#at++] ?? 0;
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }

  block(): Uint8Array {
    const length = this.varint();
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }
}

/** The number that 16 bits of half precision mean. */
export function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

function decode(dtype: OnnxTensor["dtype"], raw: Uint8Array): number[] {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const every = (step: number, read: (at: number) => number): number[] =>
    Array.from({ length: raw.length / step }, (_, i) => read(i * step));
  switch (dtype) {
    case "float32":
      return every(4, (at) => view.getFloat32(at, true));
    case "float16":
      return every(2, (at) => fromHalf(view.getUint16(at, true)));
    case "float64":
      return every(8, (at) => view.getFloat64(at, true));
    case "int64":
      return every(8, (at) => Number(view.getBigInt64(at, true)));
    case "bool":
      return every(1, (at) => view.getUint8(at));
  }
}

/** Reads a TensorProto file. The published data keeps all elements in raw_data. */
export function readTensor(path: string): OnnxTensor {
  const reader = new Reader(readFileSync(path));
  const shape: number[] = [];
  let dtype: OnnxTensor["dtype"] = "float32";
  let name = "";
  let raw = new Uint8Array();
  while (!reader.done) {
    const tag = reader.varint();
    const field = Math.floor(tag / 8);
    if (tag % 8 === 2) {
      const block = reader.block();
      if (field === NAME) name = new TextDecoder().decode(block);
      else if (field === RAW_DATA) raw = Uint8Array.from(block);
      else if (field === DIMS) {
        const packed = new Reader(block);
        while (!packed.done) shape.push(packed.varint());
      } else throw new Error(`${path}: elements outside raw_data (field ${field})`);
      continue;
    }
    if (tag % 8 !== 0) throw new Error(`${path}: wire type ${tag % 8}`);
    const value = reader.varint();
    if (field === DIMS) shape.push(value);
    if (field === DATA_TYPE) {
      const known = DTYPES[value];
      if (known === undefined) throw new Error(`${path}: data type ${value}`);
      dtype = known;
    }
  }
  return { name, dtype, shape, data: decode(dtype, raw) };
}
