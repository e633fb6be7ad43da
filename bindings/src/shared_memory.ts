/** Pages of 64 KiB: what the binaries with threads begin with, by bindings/embind/CMakeLists.txt. */
const INITIAL = 256;
/** Engines reserve addresses up to the maximum at once, of which small devices may be short. */
const MAXIMA = [65536, 32768, 16384, 8192];

/** Memory for threads to share, which grows as far as the engine lets it: to 4 GB where it can. */
export function makeSharedMemory(): WebAssembly.Memory {
  let first: unknown;
  for (const maximum of MAXIMA) {
    try {
      return new WebAssembly.Memory({ initial: INITIAL, maximum, shared: true });
    } catch (error) {
      first ??= error;
    }
  }
  throw first;
}
