import { HeedError } from "./errors.js";
import type { Heed } from "./heed.js";
import type { LoadOptions } from "./load_options.js";
import { unpackArguments } from "./remote_arguments.js";
import type { Call, FromWorker, Loaded, Port, SentOptions, ToWorker } from "./remote_messages.js";
import { faceOf, ResultPacker } from "./remote_results.js";

type AnyFunction = (...args: unknown[]) => unknown;

function toHeedError(error: unknown): HeedError {
  if (error instanceof HeedError) return error;
  if (error instanceof RangeError) return new HeedError("memory", `heed: ${error.message}`);
  return new HeedError("crashed", `heed: ${String(error)}`);
}

function toLoadOptions({ wasmUrl, ...rest }: SentOptions): LoadOptions {
  const url = typeof wasmUrl === "object" ? (file: string) => wasmUrl[file] : wasmUrl;
  const given = { ...rest, ...(url === undefined ? {} : { wasmUrl: url }) };
  // Checked by load(), as anything that a caller hands in.
  return given as LoadOptions;
}

const describeInstance = (heed: Heed): Loaded => ({
  version: heed.version,
  build: heed.build,
  choice: {
    variant: heed.variant,
    threads: heed.threads,
    simd: heed.simd,
    reasons: heed.reasons,
  },
  mechanisms: heed.mechanisms,
  parameters: heed.parameters,
  face: faceOf(heed),
});

/** The worker's side: one instance of heed, and whatever calls have left there. */
class Host {
  readonly #port: Port<FromWorker>;
  readonly #load: (options: LoadOptions) => Promise<Heed>;
  readonly #packer = new ResultPacker();

  constructor(port: Port<FromWorker>, load: (options: LoadOptions) => Promise<Heed>) {
    this.#port = port;
    this.#load = load;
  }

  async receive(message: ToWorker): Promise<void> {
    if (message.kind === "release") {
      this.#packer.objects.delete(message.handle);
      return;
    }
    try {
      if (message.kind === "load") await this.#start(message.options, message.progress);
      else await this.#answer(message.call);
    } catch (error) {
      const { code, message: text } = toHeedError(error);
      this.#port.send({ kind: "error", error: { code, message: text } }, []);
    }
  }

  async #start(options: SentOptions, reports: boolean): Promise<void> {
    const heed = await this.#load({
      ...toLoadOptions(options),
      ...(reports && {
        onProgress: (progress) => this.#port.send({ kind: "progress", progress }, []),
      }),
    });
    this.#packer.objects.set(0, heed);
    this.#port.send({ kind: "loaded", loaded: describeInstance(heed) }, []);
  }

  async #answer(call: Call): Promise<void> {
    const result = await this.#perform(call);
    this.#packer.transfer = [];
    const value = this.#packer.pack(result);
    this.#port.send({ kind: "result", value }, this.#packer.transfer);
  }

  #perform({ target, how, path, args }: Call): unknown {
    const { objects } = this.#packer;
    let owner: unknown;
    let member: unknown = objects.get(target);
    if (member === undefined) throw new HeedError("disposed", "heed: this object is gone");
    for (const name of path) {
      owner = member;
      member = (member as Record<string, unknown>)[name];
    }
    if (how === "get") return member;
    const own = args.map((argument) => unpackArguments(argument, objects));
    if (how === "construct") return Reflect.construct(member as AnyFunction, own);
    return (member as AnyFunction).apply(owner, own);
  }
}

/** Answers messages of the page; the caller hands each to what this returns. */
export function host(
  port: Port<FromWorker>,
  load: (options: LoadOptions) => Promise<Heed>,
): (message: ToWorker) => void {
  const side = new Host(port, load);
  return (message) => {
    void side.receive(message);
  };
}
