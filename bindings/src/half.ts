/** Element types of 16 bits, which JavaScript holds as bits in a Uint16Array. */
export type HalfDType = "float16" | "bfloat16";

interface Format {
  /** Bits of the mantissa, the leading one not counted. */
  readonly mantissa: number;
  /** Exponent of the smallest normal number. */
  readonly least: number;
}

const FORMATS: Readonly<Record<HalfDType, Format>> = {
  float16: { mantissa: 10, least: -14 },
  bfloat16: { mantissa: 7, least: -126 },
};

export const isHalf = (dtype: unknown): dtype is HalfDType =>
  dtype === "float16" || dtype === "bfloat16";

function roundToEven(x: number): number {
  const below = Math.floor(x);
  const rest = x - below;
  if (rest !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

/** The exponent of a positive finite number, exactly. */
function exponentOf(x: number): number {
  let exponent = Math.floor(Math.log2(x));
  if (2 ** exponent > x) exponent--;
  if (2 ** (exponent + 1) <= x) exponent++;
  return exponent;
}

/** The bits of a number, rounded to nearest, ties to even. */
export function encodeHalf(dtype: HalfDType, x: number): number {
  const { mantissa, least } = FORMATS[dtype];
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const infinity = 0x7fff & ~((1 << mantissa) - 1);
  if (Number.isNaN(x)) return sign | infinity | (1 << (mantissa - 1));
  const size = Math.abs(x);
  if (size === 0) return sign;
  if (size === Number.POSITIVE_INFINITY) return sign | infinity;
  const exponent = Math.max(exponentOf(size), least);
  const units = roundToEven(size / 2 ** (exponent - mantissa));
  // Subnormal numbers have no leading one; a mantissa that rounds up carries into the exponent.
  return sign | Math.min(((exponent - least) << mantissa) + units, infinity);
}

/** The number that bits stand for. */
export function decodeHalf(dtype: HalfDType, bits: number): number {
  const { mantissa, least } = FORMATS[dtype];
  const sign = bits & 0x8000 ? -1 : 1;
  const rest = bits & 0x7fff;
  const fraction = rest & ((1 << mantissa) - 1);
  const exponent = rest >> mantissa;
  if (exponent === 0x7fff >> mantissa) {
    return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  }
  if (exponent === 0) return sign * fraction * 2 ** (least - mantissa);
  return sign * (fraction + (1 << mantissa)) * 2 ** (exponent - 1 + least - mantissa);
}

/** `Float16Array`, where the engine has it. */
interface Float16ArrayClass {
  new (buffer: ArrayBufferLike, offset: number, length: number): ArrayBufferView;
}

/** The same bits as a Float16Array. Only called where one was seen, so the engine has it. */
export function asFloat16Array(bits: Uint16Array): ArrayBufferView {
  const known = (globalThis as { Float16Array?: Float16ArrayClass }).Float16Array;
  return known === undefined ? bits : new known(bits.buffer, bits.byteOffset, bits.length);
}
