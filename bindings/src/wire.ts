import { DTYPE_CODES, type DType } from "./dtype.js";

/** Tensors of one call in the form that bindings/embind/wire.h reads. */
export class Wire {
  #names = "";
  readonly table: number[] = [];

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
    this.table.push(DTYPE_CODES[dtype], pointer, shape.length);
    for (let axis = 0; axis < 4; axis++) this.table.push(shape[axis] ?? 1);
    for (let axis = 0; axis < 4; axis++) this.table.push(strides[axis] ?? 0);
  }
}
