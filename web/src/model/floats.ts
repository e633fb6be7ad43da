// Stored numbers as float32: F64 rounded once, F32, F16 and BF16 exactly. Little endian, as the format
// and every machine with a browser are.
import type { Message } from "./message.js";
import { t } from "./message.js";

export type FloatType = "F64" | "F32" | "F16" | "BF16";

export const FLOAT_BYTES: Readonly<Record<FloatType, number>> = { F64: 8, F32: 4, F16: 2, BF16: 2 };

/** Numbers as they are stored: 16-bit types as bits. */
export type Stored = Float32Array | Float64Array | Uint16Array;

/** The elements of a slice of a file, which begins wherever the slice begins. */
export function storedOf(type: FloatType, bytes: ArrayBuffer): Stored {
  if (type === "F64") return new Float64Array(bytes);
  return type === "F32" ? new Float32Array(bytes) : new Uint16Array(bytes);
}

let halves: Float32Array | undefined;

/** All float16 numbers by their bits. */
function halfTable(): Float32Array {
  halves ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    return sign * (1024 + fraction) * 2 ** (exponent - 25);
  });
  return halves;
}

/** Writes elements [begin, end) of `from` to the start of `to`. */
export function toFloat32(
  type: FloatType,
  from: Stored,
  to: Float32Array,
  [begin, end]: readonly [number, number] = [0, from.length],
): void {
  const part = from.subarray(begin, end);
  if (type === "BF16") {
    const bits = new Uint32Array(to.buffer, to.byteOffset, part.length);
    for (let n = 0; n < part.length; n++) bits[n] = (part[n] as number) << 16;
  } else if (type === "F16") {
    const table = halfTable();
    for (let n = 0; n < part.length; n++) to[n] = table[part[n] as number] as number;
  } else {
    to.set(part);
  }
}

/** Where the first number lies that is not finite as a float32; -1 if all are. */
export function firstNonFinite(numbers: Float32Array, length: number): number {
  for (let n = 0; n < length; n++) {
    // Infinity - Infinity and NaN - NaN are NaN.
    if ((numbers[n] as number) - (numbers[n] as number) !== 0) return n;
  }
  return -1;
}

/** "1.2 GB", in the powers of 1000 that file managers show. */
export function bytesText(bytes: number): Message {
  return bytes < 1e9 ? t`${Math.ceil(bytes / 1e6)} MB` : t`${Math.round(bytes / 1e8) / 10} GB`;
}
