// Which tensors of a file a model consists of: sizes are checked before anything is read.
import { shown, t } from "./message.js";
import { refuse } from "./model_error.js";
import type { TensorEntry } from "./safetensors.js";

/** What can be computed with; files may hold others beside. */
const FLOATS = new Set(["F64", "F32", "F16", "BF16"]);

/** Each head of each layer is drawn: a hostile file may claim any number. */
const MOST_HEADS = 256;
const MOST_LAYERS = 1024;

export function checkHeads(numHeads: number): void {
  if (numHeads > MOST_HEADS)
    refuse(
      "unknown-model",
      t`The model has ${numHeads} heads a layer; at most ${MOST_HEADS} are opened.`,
    );
}

/** Collects the tensors of a style by their names; `prefix` is what some files have before all names. */
export class TensorPlan {
  readonly entries: Map<string, TensorEntry> = new Map();

  constructor(
    private readonly tensors: ReadonlyMap<string, TensorEntry>,
    private readonly prefix: string,
  ) {}

  private find(name: string): TensorEntry | undefined {
    // The head stands outside of what the prefix names.
    return this.tensors.get(this.prefix + name) ?? this.tensors.get(name);
  }

  has(name: string): boolean {
    return this.find(name) !== undefined;
  }

  /** The shape of a tensor of this rank, from which sizes are read. */
  shape(name: string, rank: number): readonly number[] {
    const entry =
      this.find(name) ?? refuse("missing", t`The file lacks the tensor “${this.prefix + name}”.`);
    const { shape } = entry;
    if (shape.length === rank && !shape.includes(0)) return shape;
    return refuse(
      "mismatch",
      t`Tensor “${shown(entry.name)}” has the shape [${shape.join(", ")}]; expected ${rank} extents above 0.`,
    );
  }

  /** Plans a tensor, which must have this shape. */
  want(name: string, shape: readonly number[]): void {
    const given = this.shape(name, shape.length);
    const entry = this.find(name) as TensorEntry;
    if (given.some((extent, axis) => extent !== shape[axis]))
      refuse(
        "mismatch",
        t`Tensor “${shown(entry.name)}” has the shape [${given.join(", ")}]; expected [${shape.join(", ")}].`,
      );
    if (!FLOATS.has(entry.dtype))
      refuse(
        "unknown-model",
        t`Tensor “${shown(entry.name)}” has the type ${entry.dtype}; this page computes with F64, F32, F16 and BF16.`,
      );
    this.entries.set(name, entry);
  }

  wantIfThere(name: string, shape: readonly number[]): void {
    if (this.has(name)) this.want(name, shape);
  }

  /** A tensor that nobody planned would be left out of the computation: refused, unless `idle`. */
  refuseOthers(idle: RegExp): void {
    const planned = new Set([...this.entries.values()].map((entry) => entry.name));
    for (const name of this.tensors.keys()) {
      if (planned.has(name) || idle.test(name)) continue;
      refuse(
        "unknown-model",
        t`The file has the tensor “${shown(name)}”, which this page does not know.`,
      );
    }
  }

  /** The layers whose names begin with `stem` and a number: 0, 1, 2, ... without a gap. */
  countLayers(stem: string): number {
    const from = this.prefix + stem;
    const numbers = new Set<number>();
    for (const name of this.tensors.keys()) {
      const digits = name.startsWith(from) && /^(0|[1-9]\d{0,3})\./.exec(name.slice(from.length));
      if (digits) numbers.add(Number(digits[1]));
    }
    if (numbers.size > MOST_LAYERS)
      refuse(
        "unknown-model",
        t`The model has ${numbers.size} layers; at most ${MOST_LAYERS} are opened.`,
      );
    for (let layer = 0; layer < numbers.size; layer++)
      if (!numbers.has(layer))
        refuse(
          "missing",
          t`The file lacks layer ${layer}: there are ${numbers.size} layers in all.`,
        );
    return numbers.size;
  }
}
