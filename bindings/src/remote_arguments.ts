import { fail, HeedError } from "./errors.js";
import { isPlain } from "./option_names.js";
import { handleOf, type Owner } from "./remote_handles.js";
import type { Handle } from "./remote_messages.js";
import { checkAttached } from "./source.js";

/** Of arguments that are sent: options and lists in them are not deeper. */
const MOST_LEVELS = 16;

/** Which buffers of the arguments a call gives away. */
export type Transfer = boolean | readonly ArrayBuffer[];

/** Stands for an object of the worker. */
interface Reference {
  readonly heedReference: Handle;
}

const isReference = (value: object): value is Reference => "heedReference" in value;

/** Whether an array is a row of numbers or booleans: those are long, and need no look at each. */
const isRow = (array: readonly unknown[]): boolean =>
  typeof array[0] === "number" || typeof array[0] === "boolean";

/** What becomes of a view on its way. */
type PackView = (name: string, view: ArrayBufferView) => ArrayBufferView;

type AnyView = ArrayBufferView & { readonly length?: number };
type ViewClass = new (buffer: ArrayBuffer, offset?: number, length?: number) => ArrayBufferView;

/** What a view says of itself until its buffer is taken. */
interface Extent {
  readonly buffer: ArrayBuffer;
  readonly offset: number;
  readonly length: number;
}

const lengthOf = (view: AnyView): number => view.length ?? view.byteLength;

/** Elements of the kind that `view` has. */
function viewLike(view: AnyView, buffer: ArrayBuffer, offset: number, length: number) {
  // A Buffer of Node is a Uint8Array with a constructor of another kind.
  const kind = view instanceof Uint8Array ? Uint8Array : (view.constructor as ViewClass);
  return new kind(buffer, offset, length);
}

/** The fields of an object that can be sent. Of others with elements and a shape, those. */
function fieldsOf(name: string, value: object): [string, unknown][] {
  if (isPlain(value)) return Object.entries(value);
  if (value instanceof Promise) {
    fail("option", name, value, "what it resolves to: `await` it");
  }
  if (!("data" in value && "shape" in value)) {
    fail("option", name, value, "a plain object with named fields");
  }
  const { data, shape } = value;
  const dtype = "dtype" in value ? value.dtype : undefined;
  return Object.entries({ data, shape, ...(dtype !== undefined && { dtype }) });
}

/** Calls `visit` with every view in a value, as deep as what is sent. */
function visitViews(value: unknown, visit: (view: AnyView) => void, depth = 0): void {
  if (value === null || typeof value !== "object" || depth > MOST_LEVELS) return;
  const visitAll = (items: Iterable<unknown>) => {
    for (const item of items) visitViews(item, visit, depth + 1);
  };
  if (ArrayBuffer.isView(value)) visit(value);
  else if (value instanceof Map) visitAll(value.values());
  else if (!Array.isArray(value)) visitAll(Object.values(value));
  else if (!isRow(value)) visitAll(value);
}

/** Takes a buffer's memory over at once, where the engine can; else the message does. */
function take(buffer: ArrayBuffer): ArrayBuffer {
  const { transfer } = buffer as { transfer?: () => ArrayBuffer };
  if (transfer !== undefined) return transfer.call(buffer);
  if (typeof structuredClone !== "function") return buffer;
  return structuredClone(buffer, { transfer: [buffer] });
}

/**
 * The arguments of one call in a form that can be sent. Elements are copied when the call is made, or
 * taken over: what the caller does to the arrays afterwards does not matter, however long the call waits.
 */
export class PackedArguments {
  /** Buffers that the message takes along. */
  readonly transfer: ArrayBuffer[] = [];
  /** Objects of the worker that the call refers to: they must live until it is sent. */
  readonly objects: object[] = [];
  readonly #owner: Owner;
  readonly #given: Transfer;
  readonly #taken = new Map<ArrayBuffer, ArrayBuffer>();
  readonly #extents = new Map<ArrayBufferView, Extent>();
  readonly #args: readonly unknown[];

  constructor(owner: Owner, args: readonly unknown[], given: Transfer) {
    this.#owner = owner;
    this.#args = args;
    this.#given = given;
    if (given !== false) visitViews(args, (view) => this.#note(view));
  }

  all(): unknown[] {
    const each = (packView: PackView): unknown[] =>
      this.#args.map((argument, n) => this.#pack(`argument ${n + 1}`, argument, packView));
    // Whatever is refused is refused before the first buffer is taken.
    if (this.#given !== false) {
      each((name, view) => {
        checkAttached(name, view);
        return view;
      });
      this.objects.length = 0;
    }
    return each((name, view) => this.#packView(name, view));
  }

  #note(view: AnyView): void {
    const { buffer, byteOffset } = view;
    if (!(buffer instanceof ArrayBuffer) || !this.#isGiven(buffer)) return;
    this.#extents.set(view, { buffer, offset: byteOffset, length: lengthOf(view) });
  }

  #pack(name: string, value: unknown, packView: PackView, depth = 0): unknown {
    if (depth > MOST_LEVELS) {
      throw new HeedError(
        "option",
        `${name}: nested deeper than ${MOST_LEVELS} levels, or in itself`,
      );
    }
    if (typeof value === "function" || typeof value === "symbol") {
      const isExpression = /\.(score|keep|prob|feature)Mod$/.test(name);
      fail(
        "option",
        name,
        value,
        isExpression ? "an expression as text" : "something that can be sent to a worker",
      );
    }
    if (value === null || typeof value !== "object") return value;
    const handle = handleOf(this.#owner, name, value);
    if (handle !== undefined) {
      this.objects.push(value);
      return { heedReference: handle } satisfies Reference;
    }
    if (ArrayBuffer.isView(value)) return packView(name, value);
    const inner = (part: string, item: unknown) =>
      this.#pack(`${name}${part}`, item, packView, depth + 1);
    if (Array.isArray(value)) {
      return isRow(value) ? value.slice() : value.map((item, n) => inner(`[${n}]`, item));
    }
    if (value instanceof Map) {
      const entries: [unknown, unknown][] = [...value];
      return new Map(
        entries.map(([key, item]) => {
          if (typeof key !== "string") fail("option", `${name}: key`, key, "a string");
          return [key, inner(`.${key}`, item)];
        }),
      );
    }
    const fields = fieldsOf(name, value).map(([key, item]) => [key, inner(`.${key}`, item)]);
    return Object.fromEntries(fields);
  }

  #packView(name: string, view: ArrayBufferView): ArrayBufferView {
    const extent = this.#extents.get(view);
    // Checked before anything of this call is taken: the same array may be several arguments.
    if (extent === undefined || !this.#taken.has(extent.buffer)) checkAttached(name, view);
    if (extent !== undefined) {
      return viewLike(view, this.#take(extent.buffer), extent.offset, extent.length);
    }
    const { buffer, byteOffset, byteLength } = view;
    const copy = new ArrayBuffer(byteLength);
    new Uint8Array(copy).set(new Uint8Array(buffer, byteOffset, byteLength));
    this.transfer.push(copy);
    return viewLike(view, copy, 0, lengthOf(view));
  }

  #isGiven(buffer: ArrayBuffer): boolean {
    return typeof this.#given === "boolean" ? this.#given : this.#given.includes(buffer);
  }

  /** Several arguments may lie in one buffer: it is taken once. */
  #take(buffer: ArrayBuffer): ArrayBuffer {
    let taken = this.#taken.get(buffer);
    if (taken === undefined) {
      taken = takeChecked(buffer);
      this.#taken.set(buffer, taken);
      this.transfer.push(taken);
    }
    return taken;
  }
}

function takeChecked(buffer: ArrayBuffer): ArrayBuffer {
  try {
    return take(buffer);
  } catch (cause) {
    throw new HeedError(
      "option",
      `transfer: an argument lies in memory that cannot be transferred: ${String(cause)}`,
      { cause },
    );
  }
}

/** In the worker: the arguments again, with its own objects in place of references. */
export function unpackArguments(value: unknown, objects: ReadonlyMap<Handle, object>): unknown {
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  if (Array.isArray(value)) {
    return isRow(value) ? value : value.map((item) => unpackArguments(item, objects));
  }
  if (value instanceof Map) {
    return new Map([...value].map(([key, item]) => [key, unpackArguments(item, objects)]));
  }
  if (isReference(value)) {
    const object = objects.get(value.heedReference);
    if (object === undefined) throw new HeedError("disposed", "heed: an argument is gone");
    return object;
  }
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, unpackArguments(item, objects)]),
  );
}
