// The numbers of a model, read from its file tensor by tensor, each in slices.
import type { Heed } from "heed";
import {
  bytesText,
  FLOAT_BYTES,
  type FloatType,
  firstNonFinite,
  type Stored,
  storedOf,
  toFloat32,
} from "./floats.js";
import { type Matrix, ResidentMatrix, StoredMatrix } from "./matrix.js";
import { shown, t } from "./message.js";
import { ModelError, refuse } from "./model_error.js";
import type { TensorEntry } from "./safetensors.js";

/** Up to here, as float32, 16-bit weights are converted once; beyond, whenever they are used. */
const CONVERTED_BYTES = 640e6;
/** Up to here float32 files lie in heed's memory, which ends at 4 GiB. */
const RESIDENT_BYTES = 2e9;
/** The most that is read: what a tab may hold. */
const MOST_BYTES = 4e9;
/** Bytes of a slice; a multiple of every element. */
const SLICE = 2 ** 24;

const countOf = ({ shape }: TensorEntry): number => shape.reduce((a, b) => a * b, 1);

export interface Placement {
  readonly numParameters: number;
  readonly bytes: number;
  /** Of most numbers. */
  readonly dtype: FloatType;
  /** Matrices are converted once and lie in heed's memory. */
  readonly resident: boolean;
}

/** Where the weights will lie. Throws ModelError ("memory"). */
export function placementOf(entries: Iterable<TensorEntry>): Placement {
  const counts = new Map<FloatType, number>();
  let [numParameters, bytes] = [0, 0];
  for (const entry of entries) {
    const [type, count] = [entry.dtype as FloatType, countOf(entry)];
    counts.set(type, (counts.get(type) ?? 0) + count);
    numParameters += count;
    bytes += entry.end - entry.begin;
  }
  if (bytes > MOST_BYTES)
    refuse(
      "memory",
      t`The weights have ${bytesText(bytes)}; a tab can hold ${bytesText(MOST_BYTES)}.`,
    );
  const [dtype] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? (["F32"] as const);
  const room = dtype === "F32" ? RESIDENT_BYTES : CONVERTED_BYTES;
  const resident = 4 * numParameters <= room;
  return { numParameters, bytes, dtype, resident };
}

export interface WeightReading {
  readonly heed: Heed;
  readonly file: Blob;
  readonly resident: boolean;
  /** Called after each slice, with the bytes read so far. */
  readonly onBytes: (bytes: number) => void;
}

export class Weights {
  private readonly matrices = new Map<string, Matrix>();
  private readonly vectors = new Map<string, Float32Array>();
  private bytes = 0;

  private constructor(private readonly reading: WeightReading) {}

  /**
   * Reads all tensors: at any time one of them is in memory twice. Throws ModelError ("bad-weights" for a
   * number that is not finite, "memory").
   */
  static async read(
    entries: ReadonlyMap<string, TensorEntry>,
    reading: WeightReading,
  ): Promise<Weights> {
    const weights = new Weights(reading);
    try {
      for (const [name, entry] of entries) await weights.readTensor(name, entry);
    } catch (error) {
      weights.dispose();
      throw isOutOfMemory(error)
        ? new ModelError("memory", t`This browser has no room for the weights.`)
        : error;
    }
    return weights;
  }

  matrix(name: string): Matrix {
    const matrix = this.matrices.get(name);
    if (matrix === undefined) throw new Error(`no matrix ${name} was planned`);
    return matrix;
  }

  vector(name: string): Float32Array {
    const vector = this.vectors.get(name);
    if (vector === undefined) throw new Error(`no vector ${name} was planned`);
    return vector;
  }

  has(name: string): boolean {
    return this.matrices.has(name) || this.vectors.has(name);
  }

  /** A bias that not every model has. */
  vectorIfThere(name: string): Float32Array | undefined {
    return this.vectors.get(name);
  }

  dispose(): void {
    for (const matrix of this.matrices.values()) matrix.dispose();
  }

  private async readTensor(name: string, entry: TensorEntry): Promise<void> {
    const { heed, resident } = this.reading;
    const type = entry.dtype as FloatType;
    if (entry.shape.length === 1) {
      this.vectors.set(name, (await this.readFloats(entry)) as Float32Array);
    } else if (resident || type === "F64") {
      const tensor = heed.tensor(await this.readFloats(entry), entry.shape);
      this.matrices.set(name, new ResidentMatrix(heed, tensor));
    } else {
      const [rows, columns] = entry.shape as [number, number];
      const stored = await this.readStored(entry);
      this.matrices.set(name, new StoredMatrix(heed, type, stored, rows, columns));
    }
  }

  private async readFloats(entry: TensorEntry): Promise<Float32Array<ArrayBuffer>> {
    const floats = new Float32Array(countOf(entry));
    for await (const { first, part } of this.slices(entry)) floats.set(part, first);
    return floats;
  }

  private async readStored(entry: TensorEntry): Promise<Stored> {
    const type = entry.dtype as FloatType;
    const all = storedOf(type, new ArrayBuffer(entry.end - entry.begin));
    for await (const { first, stored } of this.slices(entry)) all.set(stored, first);
    return all;
  }

  /** The parts of a tensor, as stored and as float32; `first` is the number of the first element. */
  private async *slices(entry: TensorEntry) {
    const { file, onBytes } = this.reading;
    const type = entry.dtype as FloatType;
    for (let begin = entry.begin; begin < entry.end; begin += SLICE) {
      // A slice is a buffer of its own: where the tensor begins in the file does not matter.
      const slice = file.slice(begin, Math.min(begin + SLICE, entry.end));
      const stored = storedOf(type, await slice.arrayBuffer());
      const part = new Float32Array(stored.length);
      toFloat32(type, stored, part);
      const first = (begin - entry.begin) / FLOAT_BYTES[type];
      const bad = firstNonFinite(part, part.length);
      if (bad >= 0)
        refuse(
          "bad-weights",
          t`Number ${first + bad + 1} of tensor “${shown(entry.name)}” is not finite: ${String(part[bad])}.`,
        );
      this.bytes += slice.size;
      onBytes(this.bytes);
      yield { first, stored, part };
    }
  }
}

/** What heed and the engine say when memory ends. */
const isOutOfMemory = (error: unknown): boolean =>
  error instanceof RangeError || (error as { code?: unknown } | null)?.code === "memory";
