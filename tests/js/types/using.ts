// Compiled by types.test.ts with the libraries that know them: `using` and transferable buffers.
import { load } from "heed";

export async function check(): Promise<void> {
  const heed = await load();
  using tensor = heed.tensor([1, 2], [1, 2]);
  tensor.data[0] = 3;
  const { output } = heed.attention([[1]], [[1]], [[1]]);
  structuredClone(output.data, { transfer: [output.data.buffer] });
  const bytes = new Uint8Array(await (await fetch("heed-simd.wasm")).arrayBuffer());
  await load({ wasmBinary: bytes, wasmUrl: new URL("https://example.org/heed-simd.wasm") });
  await load({ module: await WebAssembly.compile(bytes) });
}
