import type { DType, DTypeArray } from "./dtype.js";
import type { Face, Handle } from "./remote_messages.js";
import { INTERNAL } from "./shown_class.js";
import { isHeapTensor, isPlainTensor } from "./tensor.js";

/** What a result is on its way to the page. */
export type Parcel =
  | { readonly is: "value"; readonly value: unknown }
  | { readonly is: "list"; readonly items: readonly Parcel[] }
  | { readonly is: "record"; readonly fields: Readonly<Record<string, Parcel>> }
  | {
      readonly is: "plain";
      readonly data: ArrayBufferView;
      readonly shape: readonly number[];
      readonly dtype: DType;
    }
  | {
      readonly is: "tensor";
      readonly handle: Handle;
      readonly shape: readonly number[];
      readonly dtype: DType;
    }
  | { readonly is: "function"; readonly handle: Handle }
  | { readonly is: "object"; readonly handle: Handle; readonly face: Face };

const isConstructor = (name: string): boolean => /^[A-Z]/.test(name);

/** Names and descriptors of an object and of the classes that it is of. */
function membersOf(object: object): Map<string, PropertyDescriptor> {
  const members = new Map<string, PropertyDescriptor>();
  const internal = new Set((object as { [INTERNAL]?: readonly string[] })[INTERNAL]);
  for (let level = object; level !== Object.prototype; level = Object.getPrototypeOf(level)) {
    for (const [name, member] of Object.entries(Object.getOwnPropertyDescriptors(level))) {
      if (name === "constructor" || internal.has(name) || members.has(name)) continue;
      members.set(name, member);
    }
  }
  return members;
}

/** The functions and fields of an object of a class. */
export function faceOf(object: object): Face {
  const functions: string[] = [];
  const constructors: string[] = [];
  const fields: string[] = [];
  const inner: Record<string, string[]> = {};
  for (const [name, { value }] of membersOf(object)) {
    if (typeof value !== "function") fields.push(name);
    else if (isConstructor(name)) constructors.push(name);
    else {
      functions.push(name);
      const own = Object.keys(value).filter((key) => typeof value[key] === "function");
      if (own.length > 0) inner[name] = own;
    }
  }
  return { functions, inner, constructors, fields };
}

const isPlainRecord = (value: object): boolean =>
  [Object.prototype, null].includes(Object.getPrototypeOf(value));

/** In the worker: packs results, and keeps what cannot be sent. */
export class ResultPacker {
  readonly objects: Map<Handle, object> = new Map();
  readonly #handles = new WeakMap<object, Handle>();
  #last: Handle = 0;
  /** Buffers that the message takes along. */
  transfer: ArrayBuffer[] = [];

  /** The same object has the same number, until it is released. */
  keep(object: object): Handle {
    let handle = this.#handles.get(object);
    if (handle === undefined || !this.objects.has(handle)) {
      handle = ++this.#last;
      this.#handles.set(object, handle);
      this.objects.set(handle, object);
    }
    return handle;
  }

  pack(value: unknown): Parcel {
    if (typeof value === "function") return { is: "function", handle: this.keep(value) };
    if (value === null || typeof value !== "object") return { is: "value", value };
    if (isHeapTensor(value)) {
      const { shape, dtype } = value;
      return { is: "tensor", handle: this.keep(value), shape, dtype };
    }
    if (isPlainTensor(value)) {
      const { data, shape, dtype } = value;
      this.transfer.push(data.buffer as ArrayBuffer);
      return { is: "plain", data, shape, dtype };
    }
    if (ArrayBuffer.isView(value)) return { is: "value", value: this.#copy(value as DTypeArray) };
    if (Array.isArray(value)) {
      const simple = value.every((item) => item === null || typeof item !== "object");
      if (simple) return { is: "value", value };
      return { is: "list", items: value.map((item) => this.pack(item)) };
    }
    if (!isPlainRecord(value)) {
      return { is: "object", handle: this.keep(value), face: faceOf(value) };
    }
    const fields = Object.entries(value).map(([name, item]) => [name, this.pack(item)]);
    return { is: "record", fields: Object.fromEntries(fields) };
  }

  /** Never the memory itself: it is that of the instance, or a layer's. */
  #copy(view: DTypeArray): ArrayBufferView {
    const copy = new (view.constructor as new (from: DTypeArray) => DTypeArray)(view);
    this.transfer.push(copy.buffer as ArrayBuffer);
    return copy;
  }
}
