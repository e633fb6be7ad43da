// Mechanisms that a task may be learned with: known to the page, and to the worker by their ids.

export interface Variant {
  /** In the address. */
  readonly id: string;
  readonly words: string;
  /** What becomes of the task with it. */
  readonly remark: string;
}

/** A mechanism of heed/training. */
export interface MechanismVariant extends Variant {
  readonly mechanism: string;
  readonly params?: Readonly<Record<string, number>>;
}

/** The first one is what a task begins with, and what an unknown id stands for. */
export class Variants<V extends Variant> {
  constructor(
    /** Steps after which training pauses by itself. */
    readonly steps: number,
    readonly all: readonly [V, ...V[]],
  ) {}

  of(id: string): V {
    return this.all.find((variant) => variant.id === id) ?? this.all[0];
  }
}
