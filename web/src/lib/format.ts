// Numbers as the page writes them: a true minus sign and a fixed number of decimals, so that
// nothing jumps while a slider moves.

import { decimal, t } from "./messages.js";

export function fixed(value: number, digits = 3): string {
  if (Number.isNaN(value)) return t`not a number`;
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const text = inGroups(Math.abs(value).toFixed(digits));
  return decimal(value < 0 && /[1-9]/.test(text) ? `−${text}` : text);
}

/** Whole numbers from 10 000 on in groups of three, as SI writes them. */
export const grouped = (value: number): string => inGroups(String(value));

const inGroups = (text: string): string =>
  /^\d{5}/.test(text) ? text.replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, "\u202f") : text;

/** Two significant digits and a power of ten: 1.2 × 10⁻⁷. */
export function scientific(value: number): string {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return fixed(value);
  return withPower(value.toExponential(1));
}

function withPower(exponential: string): string {
  const [mantissa = "", exponent = "0"] = exponential.split("e");
  return `${decimal(mantissa.replace("-", "−"))}\u00a0×\u00a010${raised(exponent)}`;
}

/** The power of ten next to a value: 10⁻⁶, for axes whose numbers are all powers of ten. */
export const powerOfTen = (value: number): string =>
  `10${raised(String(Math.round(Math.log10(value))))}`;

/** Every digit that a number has, in the form that its size asks for. */
export function everyDigit(value: number): string {
  const text = String(value);
  return text.includes("e") ? withPower(text) : decimal(inGroups(text));
}

const raised = (exponent: string): string =>
  [...exponent.replace("+", "")].map((digit) => SUPERSCRIPT[digit] ?? digit).join("");

const SUPERSCRIPT: Record<string, string> = {
  "-": "⁻",
  "0": "⁰",
  "1": "¹",
  "2": "²",
  "3": "³",
  "4": "⁴",
  "5": "⁵",
  "6": "⁶",
  "7": "⁷",
  "8": "⁸",
  "9": "⁹",
};

/** A time, in the unit in which it has one to three digits before the point. */
export function milliseconds(value: number): string {
  if (value >= 999.995) return `${decimal((value / 1000).toFixed(2))}\u00a0s`;
  return value < 0.0995
    ? `${(value * 1000).toFixed(0)}\u00a0µs`
    : `${decimal(value.toFixed(2))}\u00a0ms`;
}
