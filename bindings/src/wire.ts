import { DTYPE_CODES, type DType } from "./dtype.js";
import type { Heap, Scope } from "./heap.js";

/** Tensors of one call in the form that bindings/embind/wire.h reads. */
export class Wire {
  #names = "";
  readonly #table: number[] = [];

  get names(): string {
    return this.#names;
  }

  add(
    name: string,
    dtype: DType,
    pointer: number,
    shape: readonly number[],
    strides: readonly number[],
  ): void {
    this.#names += this.#names === "" ? name : ` ${name}`;
    const table = this.#table;
    table.push(DTYPE_CODES[dtype], pointer, shape.length);
    for (let axis = 0; axis < 4; axis++) table.push(shape[axis] ?? 1);
    for (let axis = 0; axis < 4; axis++) table.push(strides[axis] ?? 0);
  }

  /** Writes the numbers into the memory of the instance; gives their address there. */
  place(heap: Heap, scope: Scope): number {
    const { length } = this.#table;
    const address = scope.allocate("arguments", length * Float64Array.BYTES_PER_ELEMENT);
    const numbers = heap.view("float64", address, length);
    for (let n = 0; n < length; n++) numbers[n] = this.#table[n] as number;
    return address;
  }
}
