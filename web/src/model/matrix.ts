// A weight matrix [rows, columns] and its products, computed by heed.
import type { Heed, PlainTensor, Tensor } from "heed";
import { type FloatType, type Stored, toFloat32 } from "./floats.js";

export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  /** x [len, columns] times the transposed matrix (PyTorch's Linear): [len, rows]. */
  timesTransposed(x: Float32Array, len: number): Float32Array;
  /** x [len, rows] times the matrix (GPT-2's Conv1D): [len, columns]. */
  times(x: Float32Array, len: number): Float32Array;
  /** Rows by number: [ids.length, columns]. */
  gather(ids: readonly number[]): Float32Array;
  dispose(): void;
}

export type Result = Tensor<"float32"> | PlainTensor<"float32">;

/** What a result holds, out of the memory of heed. */
export function taken(result: Result): Float32Array {
  if (!("dispose" in result)) return result.data;
  const data = result.data.slice();
  result.dispose();
  return data;
}

/** In the memory of heed, in float32: nothing is converted or copied when it is used. */
export class ResidentMatrix implements Matrix {
  readonly rows: number;
  readonly columns: number;

  constructor(
    private readonly heed: Heed,
    private readonly tensor: Tensor<"float32">,
  ) {
    [this.rows, this.columns] = tensor.shape as [number, number];
  }

  timesTransposed(x: Float32Array, len: number): Float32Array {
    return taken(this.heed.linear({ data: x, shape: [len, this.columns] }, this.tensor) as Result);
  }

  times(x: Float32Array, len: number): Float32Array {
    return taken(this.heed.bmm({ data: x, shape: [len, this.rows] }, this.tensor) as Result);
  }

  gather(ids: readonly number[]): Float32Array {
    const { columns } = this;
    const { data } = this.tensor;
    const rows = new Float32Array(ids.length * columns);
    ids.forEach((id, at) => {
      rows.set(data.subarray(id * columns, (id + 1) * columns), at * columns);
    });
    return rows;
  }

  dispose(): void {
    this.tensor.dispose();
  }
}

/** Elements of a block: 16 MB of float32 beside the stored weights. */
const BLOCK = 2 ** 22;

/** As stored, converted when it is used: half the memory for 16-bit types. */
export class StoredMatrix implements Matrix {
  constructor(
    private readonly heed: Heed,
    private readonly type: FloatType,
    private readonly stored: Stored,
    readonly rows: number,
    readonly columns: number,
  ) {}

  private block(firstRow: number, rows: number): Float32Array {
    const { columns, stored, type } = this;
    const [begin, end] = [firstRow * columns, (firstRow + rows) * columns];
    if (stored instanceof Float32Array) return stored.subarray(begin, end);
    const block = new Float32Array(end - begin);
    toFloat32(type, stored, block, [begin, end]);
    return block;
  }

  timesTransposed(x: Float32Array, len: number): Float32Array {
    const { rows, columns } = this;
    const product = new Float32Array(len * rows);
    const step = Math.max(1, Math.floor(BLOCK / columns));
    for (let first = 0; first < rows; first += step) {
      const count = Math.min(step, rows - first);
      const weight = { data: this.block(first, count), shape: [count, columns] };
      const { data } = this.heed.linear({ data: x, shape: [len, columns] }, weight);
      for (let row = 0; row < len; row++)
        product.set(data.subarray(row * count, (row + 1) * count), row * rows + first);
    }
    return product;
  }

  times(x: Float32Array, len: number): Float32Array {
    const { rows, columns } = this;
    const weight = { data: this.block(0, rows), shape: [rows, columns] };
    return this.heed.bmm({ data: x, shape: [len, rows] }, weight).data;
  }

  gather(ids: readonly number[]): Float32Array {
    const rows = new Float32Array(ids.length * this.columns);
    ids.forEach((id, at) => {
      rows.set(this.block(id, 1), at * this.columns);
    });
    return rows;
  }

  dispose(): void {}
}
