// How long a program waits before heed is ready: import, load(), and the first call, each once in a
// process or page that has not seen the package before.

/**
 * @param {() => Promise<{load: Function}>} importPackage
 * @returns {Promise<{load_ms: number, first_call_ms: number}>}
 */
export async function coldStart(importPackage, threads) {
  const begin = performance.now();
  const { load } = await importPackage();
  const heed = await load({ threads });
  const loaded = performance.now();
  const tensor = { data: new Float32Array(128 * 64).fill(0.1), shape: [1, 1, 128, 64] };
  heed.attention(tensor, tensor, tensor);
  return { load_ms: loaded - begin, first_call_ms: performance.now() - loaded };
}
