import type { DType, DTypeArray } from "./dtype.js";
import { fail, HeedError } from "./errors.js";
import { type NestedNumbers, toNested } from "./nested.js";
import { asRecord } from "./option_names.js";
import { PackedArguments, type Transfer } from "./remote_arguments.js";
import type { Client, Signal } from "./remote_client.js";
import { isGone, settle } from "./remote_handles.js";
import type { Call, Face, Handle } from "./remote_messages.js";
import type { Parcel } from "./remote_results.js";
import { plainTensor } from "./tensor.js";

type AnyFunction = (...args: unknown[]) => Promise<unknown>;

/** What every call takes beside its own options. */
interface Controls {
  readonly args: readonly unknown[];
  readonly signal: Signal | undefined;
  readonly transfer: Transfer;
}

const isSignal = (value: unknown): value is Signal =>
  ["addEventListener", "removeEventListener"].every(
    (name) => typeof (value as Record<string, unknown> | null)?.[name] === "function",
  );

const isTransfer = (value: unknown): value is Transfer =>
  typeof value === "boolean" ||
  (Array.isArray(value) && value.every((item) => item instanceof ArrayBuffer));

/** Takes `signal` and `transfer` out of the last argument. */
function takeControls(args: readonly unknown[]): Controls {
  const last = args.at(-1);
  const isRecord = last !== null && typeof last === "object" && !Array.isArray(last);
  if (!isRecord || !("signal" in last || "transfer" in last)) {
    return { args, signal: undefined, transfer: false };
  }
  const { signal, transfer, ...rest } = asRecord("options", last);
  if (signal !== undefined && !isSignal(signal)) fail("option", "signal", signal, "an AbortSignal");
  if (transfer !== undefined && !isTransfer(transfer)) {
    fail("option", "transfer", transfer, "true, false or a list of ArrayBuffers");
  }
  const options = Object.keys(rest).length > 0 ? [rest] : [];
  return { args: [...args.slice(0, -1), ...options], signal, transfer: transfer ?? false };
}

/** Makes what the page holds of an instance: functions that ask the worker, and what they return. */
export class RemoteObjects {
  readonly #client: Client;
  /** Tells the worker about objects that the page has dropped. */
  readonly #net: FinalizationRegistry<{ handle: Handle; generation: number }>;
  readonly #disposed = new WeakSet<object>();

  constructor(client: Client) {
    this.#client = client;
    this.#net = new FinalizationRegistry(({ handle, generation }) =>
      client.release(handle, generation),
    );
  }

  /** Adds the functions, constructors and fields of `face` to an object. */
  shape<T extends object>(object: T, target: Handle, face: Face): T {
    const self = isBound(target) ? object : undefined;
    const add = (name: string, descriptor: PropertyDescriptor): void => {
      Object.defineProperty(object, name, { enumerable: true, ...descriptor });
    };
    for (const name of face.functions) {
      const value = this.#function(self, target, [name]);
      for (const inner of face.inner[name] ?? []) {
        Object.assign(value, { [inner]: this.#function(self, target, [name, inner]) });
      }
      add(name, { value });
    }
    for (const name of face.constructors) add(name, { value: this.#classOf(target, name) });
    for (const name of face.fields) {
      if (name === "disposed") add(name, { get: () => this.isDisposed(object) });
      else add(name, { get: () => this.get(self, target, name) });
    }
    return object;
  }

  isDisposed(object: object): boolean {
    return this.#disposed.has(object) || isGone(object);
  }

  get(self: object | undefined, target: Handle, name: string): Promise<unknown> {
    return this.#ask(self, { target, how: "get", path: [name] }, []);
  }

  call(self: object, target: Handle, name: string, args: readonly unknown[]): Promise<unknown> {
    return this.#ask(self, { target, how: "call", path: [name] }, args);
  }

  #function(self: object | undefined, target: Handle, path: readonly string[]): AnyFunction {
    return (...args) => this.#ask(self, { target, how: "call", path }, args);
  }

  #classOf(target: Handle, name: string): unknown {
    const ask = (args: readonly unknown[]): Promise<unknown> =>
      this.#ask(undefined, { target, how: "construct", path: [name] }, args);
    return function construct(...args: unknown[]): Promise<unknown> {
      if (new.target === undefined) {
        throw new HeedError("option", `${name}: is a class: await new heed.${name}(options)`);
      }
      return ask(args);
    };
  }

  /** Everything that can go wrong is a rejection, as callers of promises expect. */
  async #ask(
    self: object | undefined,
    call: Omit<Call, "args">,
    args: readonly unknown[],
  ): Promise<unknown> {
    const client = this.#client;
    const controls = takeControls(args);
    if (controls.signal?.aborted) {
      const cause = controls.signal.reason;
      throw new HeedError("aborted", "heed: the signal of this call was aborted", { cause });
    }
    if (self !== undefined && isGone(self)) {
      throw new HeedError(
        "disposed",
        "heed: this object lived in a worker that has ended; after an abort or a crash make it again",
      );
    }
    if (self !== undefined && call.path[0] === "dispose") this.#disposed.add(self);
    const packed = new PackedArguments(client, controls.args, controls.transfer);
    const sent = packed.all();
    const objects = self === undefined ? packed.objects : [self, ...packed.objects];
    const { transfer } = packed;
    const answer = await client.call({ ...call, args: sent }, transfer, objects, controls.signal);
    return this.#unpack(answer as Parcel);
  }

  #unpack(parcel: Parcel): unknown {
    switch (parcel.is) {
      case "value":
        return parcel.value;
      case "list":
        return parcel.items.map((item) => this.#unpack(item));
      case "record":
        return Object.fromEntries(
          Object.entries(parcel.fields).map(([name, item]) => [name, this.#unpack(item)]),
        );
      case "plain":
        return toPlain(parcel);
      case "tensor":
        return this.#settle(new RemoteHeapTensor(this, parcel), parcel.handle);
      case "function":
        return this.#remoteFunction(parcel.handle);
      case "object": {
        const object = this.#settle({}, parcel.handle);
        return withDispose(this.shape(object, parcel.handle, parcel.face));
      }
    }
  }

  #remoteFunction(handle: Handle): AnyFunction {
    const call: AnyFunction = (...args) =>
      this.#ask(call, { target: handle, how: "call", path: [] }, args);
    return this.#settle(call, handle);
  }

  #settle<T extends object>(object: T, handle: Handle): T {
    settle(object, this.#client, handle);
    this.#net.register(object, { handle, generation: this.#client.generation });
    return object;
  }
}

/** The instance itself is in every worker; anything else in one. */
const isBound = (target: Handle): boolean => target !== 0;

function toPlain({ data, shape, dtype }: Parcel & { is: "plain" }): unknown {
  const isFloat16Array = dtype === "float16" && !(data instanceof Uint16Array);
  const { buffer, byteOffset, byteLength } = data;
  const elements = isFloat16Array ? new Uint16Array(buffer, byteOffset, byteLength / 2) : data;
  return plainTensor(elements as DTypeArray, Object.freeze([...shape]), dtype, isFloat16Array);
}

/** `await using`, and `using`, where the engine knows the symbols. */
function withDispose<T extends object>(object: T): T {
  const { dispose, asyncDispose } = Symbol as { dispose?: symbol; asyncDispose?: symbol };
  const end = (): Promise<unknown> => (object as { dispose?: AnyFunction }).dispose?.() as never;
  const quiet = (): void => void end().catch(() => {});
  if (asyncDispose !== undefined) Object.defineProperty(object, asyncDispose, { value: end });
  if (dispose !== undefined) Object.defineProperty(object, dispose, { value: quiet });
  return object;
}

/** What a `RemoteTensor` is at run time. */
class RemoteHeapTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly #objects: RemoteObjects;
  readonly #handle: Handle;

  constructor(objects: RemoteObjects, { handle, shape, dtype }: Parcel & { is: "tensor" }) {
    this.#objects = objects;
    this.#handle = handle;
    this.dtype = dtype;
    this.shape = Object.freeze([...shape]);
    withDispose(this);
    Object.freeze(this);
  }

  get disposed(): boolean {
    return this.#objects.isDisposed(this);
  }

  get data(): Promise<unknown> {
    return this.#objects.get(this, this.#handle, "data");
  }

  async toNested<T = NestedNumbers>(): Promise<T> {
    const elements = await this.#objects.get(this, this.#handle, "elements");
    return toNested(elements as DTypeArray, this.shape, this.dtype) as T;
  }

  async dispose(): Promise<void> {
    if (this.disposed) return;
    await this.#objects.call(this, this.#handle, "dispose", []);
  }
}
