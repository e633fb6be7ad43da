import { HeedError } from "./errors.js";

/** Bytes of a text in base64. */
function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Bytes that were compressed with gzip and written as base64. */
export async function unpackBase64(text: string): Promise<Uint8Array> {
  if (typeof DecompressionStream !== "function") {
    throw new HeedError(
      "unsupported",
      'heed/inline needs DecompressionStream (Chrome 80, Firefox 113, Safari 16.4, Node 18); import "heed"',
    );
  }
  const packed = new Blob([fromBase64(text)]).stream();
  const unpacked = packed.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}
