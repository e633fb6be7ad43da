// Numbers as the page writes them: a true minus sign and a fixed number of decimals, so that
// nothing jumps while a slider moves.

import { decimal, t } from "./messages.js";
export function fixed(value: number, digits = 3): string {
  if (Number.isNaN(value)) return t`not a number`;
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const text = Math.abs(value).toFixed(digits);
  return decimal(value < 0 && Number(text) !== 0 ? `−${text}` : text);
}

/** Whole numbers from 10 000 on in groups of three, as SI writes them. */
export const grouped = (value: number): string =>
  value < 10_000 ? String(value) : String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** Two significant digits and a power of ten: 1.2 × 10⁻⁷. */
export function scientific(value: number): string {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return fixed(value);
  const [mantissa = "", exponent = "0"] = value.toExponential(1).split("e");
  const raised = [...exponent.replace("+", "")].map((digit) => SUPERSCRIPT[digit] ?? digit);
  return `${decimal(mantissa)}\u00a0×\u00a010${raised.join("")}`;
}

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
  if (value >= 999.995) return `${decimal((value / 1000).toFixed(2))} s`;
  return value < 0.0995 ? `${(value * 1000).toFixed(0)} µs` : `${decimal(value.toFixed(2))} ms`;
}
