// A place of the long map in a link: "65536" as a whole, "65536,30000,1200,512" with the query and key in
// the middle and the keys across. Independent of the size of the picture.
import { type Box, type Sight, wholeSight } from "../../lib/tile_map.js";

export const LENGTHS = [4096, 16384, 65536, 100000] as const;

export interface Place {
  length: number;
  /** Absent: the whole map. */
  part?: { row: number; column: number; across: number };
}

export const sightAt = ({ length, part }: Place, box: Box): Sight => {
  if (!part) return wholeSight(length, box);
  const scale = part.across / box.width;
  const half = (box.height * scale) / 2;
  return { scale, top: part.row - half, left: part.column - part.across / 2 };
};

/** Four digits of what is in sight place it well. */
function rounded(place: number, across: number): number {
  const step = 10 ** Math.min(0, Math.floor(Math.log10(across)) - 3);
  return Number((Math.round(place / step) * step).toFixed(3));
}

export function placeText(length: number, sight: Sight, box: Box): string {
  const whole = box.width === 0 || sight.scale >= wholeSight(length, box).scale * 0.999;
  if (whole) return String(length);
  const across = box.width * sight.scale;
  const middle = [sight.top + (box.height * sight.scale) / 2, sight.left + across / 2];
  return [length, ...[...middle, across].map((place) => rounded(place, across))].join(",");
}

/** null where a text is no place of a map that there is. */
export function placeOf(text: string): Place | null {
  const [count, ...rest] = text.split(",").map((part) => (part.trim() === "" ? NaN : Number(part)));
  const length = LENGTHS.find((known) => known === count);
  if (length === undefined || rest.some((place) => !(place >= 0 && place <= length))) return null;
  const [row, column, across] = rest;
  if (rest.length === 0) return { length };
  if (rest.length !== 3 || row === undefined || column === undefined || !across) return null;
  return { length, part: { row, column, across } };
}
