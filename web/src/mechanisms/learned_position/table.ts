// A seeded table as training might leave it: rows of near positions are alike. What lies beyond its end can
// only be reached by stretching it.
import { floats } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { DIM } from "../sinusoidal/code.js";

/** How much of a row is that of the position before. */
const LIKENESS = 0.85;
const SIZE = 0.7;

export function tableOf(rows: number): ExampleTensor {
  const normal = normalSource(hashText("learned positions"));
  const values = new Float32Array(rows * DIM);
  const fresh = Math.sqrt(1 - LIKENESS ** 2);
  for (let at = 0; at < values.length; at++) {
    const before = values[at - DIM];
    values[at] =
      before === undefined ? SIZE * normal() : LIKENESS * before + fresh * SIZE * normal();
  }
  return floats(values, [rows, DIM]);
}
