import { type DType, type DTypeArray, makeView } from "./dtype.js";
import { HeedError, type HeedErrorCode } from "./errors.js";
import type { Failure, MemoryGlue } from "./glue.js";
import { MAX_BYTES } from "./shape.js";

/** What `heed.memory()` reports. */
export interface MemoryReport {
  /** Tensors that were made and not yet disposed of. */
  tensors: number;
  /** Bytes that they hold. */
  bytes: number;
  /**
   * Size of the WebAssembly memory: it grows, to 4 GB at most, and never shrinks; dispose of the instance to
   * free it.
   */
  heapBytes: number;
}

/** The memory of one WebAssembly instance, and whether the instance can still be used. */
export class Heap<Glue extends MemoryGlue = MemoryGlue> {
  readonly #glue: Glue;
  #crash: unknown;
  #closed = false;
  /** Every buffer that views were made of: growth detaches the last one and makes another. */
  readonly #buffers = new WeakSet<ArrayBufferLike>();
  #latest: ArrayBufferLike | undefined;
  tensors = 0;
  bytes = 0;
  /** Frees tensors that were dropped without dispose(): a safety net, not a plan. */
  readonly net: FinalizationRegistry<{ pointer: number; bytes: number }>;

  constructor(glue: Glue) {
    this.#glue = glue;
    this.net = new FinalizationRegistry(({ pointer, bytes }) => this.freeTensor(pointer, bytes));
  }

  get closed(): boolean {
    return this.#closed;
  }

  get usable(): boolean {
    return !this.#closed && this.#crash === undefined;
  }

  report(): MemoryReport {
    const heapBytes = this.#closed ? 0 : this.#glue.wasmMemory.buffer.byteLength;
    return { tensors: this.tensors, bytes: this.bytes, heapBytes };
  }

  /** Throws when the instance was disposed of or trapped. */
  checkUsable(): void {
    if (this.#closed) throw new HeedError("disposed", "heed: this instance was disposed of");
    if (this.#crash !== undefined) {
      throw new HeedError(
        "crashed",
        "heed: this instance crashed earlier; load() gives a new one",
        {
          cause: this.#crash,
        },
      );
    }
  }

  /** Runs `work` on the module. An exception that comes out of it is a trap: the instance is spent. */
  call<T>(work: (glue: Glue) => T): T {
    this.checkUsable();
    try {
      return work(this.#glue);
    } catch (cause) {
      this.#crash = cause ?? new Error("unknown trap");
      // Those that trapped as well would report it to nobody, which ends a process of Node.
      this.#stopThreads();
      throw new HeedError(
        "crashed",
        `heed: the WebAssembly instance crashed (${String(cause)}); load() gives a new one`,
        { cause },
      );
    }
  }

  /** Like `call`, and turns a refusal by C++ into a HeedError. */
  callChecked<T>(work: (glue: Glue) => T): Exclude<T, Failure> {
    const result = this.call(work);
    const failure = result as Partial<Failure> | null;
    if (failure !== null && typeof failure === "object" && typeof failure.code === "string") {
      const { code, message = "" } = failure;
      throw new HeedError(code as HeedErrorCode, message);
    }
    return result as Exclude<T, Failure>;
  }

  /** Address of `bytes` new bytes, never 0: an empty tensor has an address too. */
  allocate(argument: string, bytes: number): number {
    // malloc() would take what is left of a number beyond 32 bits.
    const fits = bytes < MAX_BYTES;
    const pointer = fits ? this.call((glue) => glue._malloc(Math.max(bytes, 16))) >>> 0 : 0;
    if (pointer === 0) this.#noRoom(argument, `${bytes} more bytes`);
    return pointer;
  }

  /** Reads a text that ends with a zero, and frees it. */
  takeText(argument: string, pointer: number): string {
    if (pointer === 0) this.#noRoom(argument, "its text");
    const bytes = new Uint8Array(this.#glue.wasmMemory.buffer);
    // Shared memory cannot be decoded in place.
    const text = bytes.slice(pointer, bytes.indexOf(0, pointer));
    this.free(pointer);
    return new TextDecoder().decode(text);
  }

  /** Runs `work`, which gives something back to the module: of one that is spent there is nothing left. */
  release(work: (glue: Glue) => unknown): void {
    if (this.usable) this.call(work);
  }

  free(pointer: number): void {
    this.release((glue) => glue._free(pointer));
  }

  /** Frees the memory of a tensor that was counted in `tensors` and `bytes`. */
  freeTensor(pointer: number, bytes: number): void {
    this.tensors--;
    this.bytes -= bytes;
    this.free(pointer);
  }

  /** A view that is valid until the memory grows: take it, use it, drop it. */
  view(dtype: DType, pointer: number, length: number): DTypeArray {
    this.checkUsable();
    const { buffer } = this.#glue.wasmMemory;
    if (buffer !== this.#latest) {
      this.#latest = buffer;
      this.#buffers.add(buffer);
    }
    return makeView(dtype, buffer, pointer, length);
  }

  /** Whether a buffer is, or was before it grew, the memory of the instance. */
  owns(buffer: ArrayBufferLike): boolean {
    return this.#buffers.has(buffer);
  }

  /** Ends the instance and its threads. */
  close(): void {
    this.#closed = true;
    this.#stopThreads();
  }

  #noRoom(argument: string, what: string): never {
    throw new HeedError("memory", `${argument}: the WebAssembly memory has no room for ${what}`);
  }

  #stopThreads(): void {
    try {
      this.#glue.PThread?.terminateAllThreads();
    } catch {
      // A trapped instance has nothing left to stop.
    }
  }
}

/** The blocks of one call, freed together whatever happens. */
export class Scope {
  readonly #heap: Heap;
  readonly #pointers: number[] = [];

  constructor(heap: Heap) {
    this.#heap = heap;
  }

  allocate(argument: string, bytes: number): number {
    const pointer = this.#heap.allocate(argument, bytes);
    this.#pointers.push(pointer);
    return pointer;
  }

  /** Takes over a block that the module allocated. */
  adopt(pointer: number): void {
    this.#pointers.push(pointer);
  }

  /** Hands a block over to a longer life. */
  keep(pointer: number): void {
    this.#pointers.splice(this.#pointers.indexOf(pointer), 1);
  }

  free(): void {
    for (const pointer of this.#pointers) this.#heap.free(pointer);
  }
}
