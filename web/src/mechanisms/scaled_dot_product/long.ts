// One causal head over up to 100 000 tokens. The matrix is never held: a tile of its picture is made
// from q, k and lse, and lse is computed for the rows that are looked at, once.
import type { Heed } from "heed";
import { hashText, normalSource } from "../../lib/random.js";
import { type Pixels, placesOf, TILE, type Tile } from "../../lib/tile_map.js";

export const DIM = 16;
const TOPICS = 6;
/** Sections of a topic: what shows when a block is looked at closer. */
const SECTIONS = 48;

/** Rows and columns looked at per pixel: all tiles in sight at the first, then all at the next. */
export const PASSES = [2, 8, 32] as const;

/** Rows whose lse is computed without a pause: about 60 ms at 100 000 keys. */
const LSE_ROWS = 128;
/** Rows of a tile without a pause: about 10 ms. */
const TILE_ROWS = 256;

/** How long the stretches are, in tokens: about `mean`, never 0. */
const stretch = (normal: () => number, mean: number) =>
  1 + Math.round(mean * (0.4 + 0.75 * Math.abs(normal())));

const vectors = (count: number, normal: () => number, size: number) =>
  Array.from({ length: count }, () => Float32Array.from({ length: DIM }, () => size * normal()));

/** Tokens [length, DIM] that wander between topics, and inside them between sections. */
export function wander(length: number): Float32Array {
  const normal = normalSource(hashText("long"));
  const topics = vectors(TOPICS, normal, 1);
  const sections = vectors(SECTIONS, normal, 0.7);
  const pick = (count: number) => Math.floor(Math.abs(normal()) * 1e6) % count;
  const x = new Float32Array(length * DIM);
  let [topic, section, topicLeft, sectionLeft] = [0, 0, 0, 0];
  for (let t = 0; t < length; t++) {
    if (topicLeft-- <= 0) {
      [topic, topicLeft, sectionLeft] = [pick(TOPICS), stretch(normal, length / 24), 0];
    }
    if (sectionLeft-- <= 0) {
      [section, sectionLeft] = [pick(SECTIONS), stretch(normal, Math.min(400, length / 160))];
    }
    for (let d = 0; d < DIM; d++) {
      x[t * DIM + d] =
        (topics[topic]?.[d] as number) + (sections[section]?.[d] as number) + 0.5 * normal();
    }
  }
  return x;
}

export interface LongRow {
  /** [row + 1]: the keys that the query sees. */
  weights: Float32Array;
  lse: number;
}

/** Asked between steps; true gives the tile up. What is known of lse is kept. */
export type Pause = () => Promise<boolean>;

interface Sampled {
  rows: Int32Array;
  columns: Int32Array;
  samples: number;
}

/** Sums of weights under each pixel, and of two quarters that share no row and no column. */
class Sums {
  readonly total = new Float64Array(TILE * TILE);
  readonly counts = new Uint32Array(TILE * TILE);
  readonly halves = [new Float64Array(TILE * TILE), new Float64Array(TILE * TILE)] as const;
  readonly halfCounts = [new Uint32Array(TILE * TILE), new Uint32Array(TILE * TILE)] as const;

  /** `weights` are of the sampled rows from `first` on, [rows, columns]. */
  add({ rows, columns, samples }: Sampled, first: number, weights: Float32Array): void {
    const width = columns.length;
    for (let at = 0; at * width < weights.length; at++) {
      const row = rows[first + at] as number;
      const y = Math.floor((first + at) / samples) * TILE;
      const half = (first + at) & 1;
      const sums = this.halves[half] as Float64Array;
      const counts = this.halfCounts[half] as Uint32Array;
      for (let c = 0; c < width && (columns[c] as number) <= row; c++) {
        const pixel = y + Math.floor(c / samples);
        const weight = weights[at * width + c] as number;
        this.total[pixel] = (this.total[pixel] as number) + weight;
        this.counts[pixel] = (this.counts[pixel] as number) + 1;
        if ((c & 1) !== half) continue;
        sums[pixel] = (sums[pixel] as number) + weight;
        counts[pixel] = (counts[pixel] as number) + 1;
      }
    }
  }

  means(): Float32Array {
    return Float32Array.from(this.total, (sum, pixel) => sum / (this.counts[pixel] as number));
  }

  /** Half the mean difference of the two quarters over the mean: no less than the estimate's own. */
  error(): number {
    const [a, b] = this.halves;
    const [m, n] = this.halfCounts;
    let [apart, all] = [0, 0];
    for (let pixel = 0; pixel < TILE * TILE; pixel++) {
      const [inA, inB] = [m[pixel] as number, n[pixel] as number];
      if (inA === 0 || inB === 0) continue;
      const [x, y] = [(a[pixel] as number) / inA, (b[pixel] as number) / inB];
      apart += Math.abs(x - y) / 2;
      all += (x + y) / 2;
    }
    return all > 0 ? apart / all : 0;
  }
}

/** A head that is looked at. Holds q = k [length, DIM], and lse where it is known. */
export class LongHead {
  private readonly lse: Float32Array;
  private readonly keys: ReturnType<Heed["tensor"]>;
  private readonly values: ReturnType<Heed["tensor"]>;

  constructor(
    private readonly heed: Heed,
    readonly length: number,
    private readonly x = wander(length),
  ) {
    this.lse = new Float32Array(length).fill(Number.NaN);
    this.keys = heed.tensor(x, [1, 1, length, DIM]);
    this.values = heed.tensor(new Float32Array(length), [1, 1, length, 1]);
  }

  dispose(): void {
    this.keys.dispose();
    this.values.dispose();
  }

  /** null where `pause` gave it up. Throws HeedError. */
  async tile(tile: Tile, most: number, pause: Pause): Promise<Pixels | null> {
    const samples = Math.min(2 ** tile.level, most);
    const rows = placesOf("rows", tile, samples, this.length);
    const last = rows.at(-1) ?? -1;
    const all = placesOf("columns", tile, samples, this.length);
    const columns = all.subarray(0, all.findLastIndex((key) => key <= last) + 1);
    if (!(await this.know(rows, pause))) return null;
    const sums = new Sums();
    const k = this.gathered(columns);
    for (let first = 0; first < rows.length && columns.length > 0; first += TILE_ROWS) {
      if (await pause()) return null;
      const some = rows.subarray(first, first + TILE_ROWS);
      const lse = { data: this.lseOf(some), shape: [1, 1, some.length] };
      // Hidden keys are left out of the sums; of the others the weights are those of the whole row.
      const { weights } = this.heed.weightsTile(this.gathered(some), k, lse);
      sums.add({ rows, columns, samples }, first, weights.data as Float32Array);
    }
    return { values: sums.means(), samples, error: samples === 2 ** tile.level ? 0 : sums.error() };
  }

  /** Everything that one query sees. */
  async row(row: number): Promise<LongRow> {
    const one = Int32Array.of(row);
    await this.know(one, async () => false);
    const lse = { data: this.lseOf(one), shape: [1, 1, 1] };
    const k = { data: this.x.subarray(0, (row + 1) * DIM), shape: [1, 1, row + 1, DIM] };
    const { weights } = this.heed.weightsTile(this.gathered(one), k, lse);
    return { weights: (weights.data as Float32Array).slice(), lse: this.lse[row] as number };
  }

  private gathered(places: Int32Array) {
    const data = new Float32Array(places.length * DIM);
    places.forEach((place, at) => {
      data.set(this.x.subarray(place * DIM, (place + 1) * DIM), at * DIM);
    });
    return { data, shape: [1, 1, places.length, DIM] };
  }

  private lseOf(rows: Int32Array): Float32Array {
    return Float32Array.from(rows, (row) => this.lse[row] as number);
  }

  /** Computes lse of the rows where it is not known; false where `pause` gave it up. */
  private async know(rows: Int32Array, pause: Pause): Promise<boolean> {
    const unknown = rows.filter((row) => Number.isNaN(this.lse[row]));
    for (let first = 0; first < unknown.length; first += LSE_ROWS) {
      if (await pause()) return false;
      const some = unknown.subarray(first, first + LSE_ROWS);
      // Query i of a causal head sees its first i + 1 keys.
      const keyLengths = { data: some.map((row) => row + 1), shape: [1, some.length] };
      const { output, lse } = this.heed.attention(this.gathered(some), this.keys, this.values, {
        keyLengths,
        returnLse: true,
      });
      const found = lse.data as Float32Array;
      some.forEach((row, at) => {
        this.lse[row] = found[at] as number;
      });
      output.dispose();
      lse.dispose();
    }
    return true;
  }
}
