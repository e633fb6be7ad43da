import { HeedError } from "./errors.js";
import type { LoadProgress } from "./load_options.js";
import type { AnyPlatform } from "./platform.js";

const MAGIC = [0, 0x61, 0x73, 0x6d];

function refuse(message: string, cause?: unknown): never {
  throw new HeedError("wasm-load", message, cause === undefined ? undefined : { cause });
}

/** Says what was found where WebAssembly should be: nearly always a server's HTML page. */
function checkMagic(bytes: Uint8Array, from: string): void {
  if (MAGIC.every((byte, i) => bytes[i] === byte)) return;
  const start = new TextDecoder().decode(bytes.subarray(0, 64)).trimStart();
  if (start.startsWith("<")) {
    refuse(`heed: got HTML from ${from} instead of WebAssembly: is the file served there?`);
  }
  const shown = Array.from(bytes.subarray(0, 4), (byte) => byte.toString(16).padStart(2, "0"));
  refuse(
    `heed: ${from} is not WebAssembly (${bytes.length} bytes, starting with ${shown.join(" ") || "nothing"})`,
  );
}

export async function compileBytes(bytes: Uint8Array, from: string): Promise<WebAssembly.Module> {
  checkMagic(bytes, from);
  try {
    return await WebAssembly.compile(bytes as Uint8Array<ArrayBuffer>);
  } catch (cause) {
    return refuse(`heed: ${from} could not be compiled: ${String(cause)}`, cause);
  }
}

/** Bundlers may write `new URL()` as a path, which only a page can fetch: what helps then. */
const adviceFor = (url: URL): string =>
  String(url).startsWith("/")
    ? '; a server must keep heed out of its bundle (Next.js: serverExternalPackages: ["heed"])'
    : "";

async function fetchResponse(url: URL): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url);
  } catch (cause) {
    return refuse(`heed: ${url} could not be fetched: ${String(cause)}${adviceFor(url)}`, cause);
  }
  if (!response.ok) refuse(`heed: ${url} answered ${response.status} ${response.statusText}`);
  return response;
}

async function readBytes(read: () => Promise<Uint8Array | ArrayBuffer>, from: string) {
  try {
    return new Uint8Array(await read());
  } catch (cause) {
    return refuse(`heed: ${from} could not be read: ${String(cause)}`, cause);
  }
}

type Report = (progress: LoadProgress) => void;

/** The size that the server states, if it is that of the uncompressed file. */
function statedSize({ headers }: Response): number | undefined {
  const length = headers.get("content-encoding") === null ? headers.get("content-length") : null;
  return length === null ? undefined : Number(length);
}

/** The same response, which reports its bytes as they pass. */
function counted(response: Response, report: Report): Response {
  if (response.body === null) return response;
  const stated = statedSize(response);
  let loaded = 0;
  const count = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      loaded += chunk.byteLength;
      // More than was stated: a compressed answer whose headers do not say so.
      report({ loaded, total: stated !== undefined && loaded <= stated ? stated : undefined });
      controller.enqueue(chunk);
    },
  });
  const body = (response.body as ReadableStream<Uint8Array>).pipeThrough(count);
  return new Response(body as ReadableStream<Uint8Array<ArrayBuffer>>, {
    headers: response.headers,
  });
}

/** Fetches and compiles a module. Servers that send a wrong MIME type only cost the streaming. */
export async function compileUrl(
  url: URL,
  platform: AnyPlatform,
  report?: Report,
): Promise<WebAssembly.Module> {
  const { readFile } = platform;
  if (url.protocol === "file:" && readFile !== undefined) {
    const bytes = await readBytes(() => readFile(url), url.href);
    report?.({ loaded: bytes.length, total: bytes.length });
    return compileBytes(bytes, url.href);
  }
  const answer = await fetchResponse(url);
  const response = report === undefined ? answer : counted(answer, report);
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("application/wasm") && typeof WebAssembly.compileStreaming === "function") {
    try {
      return await WebAssembly.compileStreaming(response);
    } catch (cause) {
      return refuse(`heed: ${url} could not be compiled: ${String(cause)}`, cause);
    }
  }
  return compileBytes(await readBytes(() => response.arrayBuffer(), url.href), url.href);
}
