/** Smallest modules that an engine accepts only if it has the feature; nothing of them is run. */
const PROBES = {
  // What every variant has: a memory; try, catch_all; i32.atomic.load of address 0; i8x16.splat;
  // i8x16.popcnt
  simd: [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 5, 3, 1, 0, 1, 10, 18, 1, 16,
    0, 6, 64, 25, 11, 65, 0, 254, 16, 2, 0, 253, 15, 253, 98, 11,
  ],
  // three i32x4.splat; f32x4.relaxed_madd
  relaxed: [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0, 65, 0, 253,
    17, 65, 0, 253, 17, 65, 0, 253, 17, 253, 133, 2, 11,
  ],
  // a shared memory and an atomic load
  threads: [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 5, 4, 1, 3, 1, 1, 10, 11, 1, 9, 0,
    65, 0, 254, 16, 2, 0, 26, 11,
  ],
};

/** What the engine can run. */
export interface Features {
  simd: boolean;
  relaxed: boolean;
  threads: boolean;
}

const validates = (bytes: readonly number[]): boolean =>
  typeof WebAssembly === "object" && WebAssembly.validate(Uint8Array.from(bytes));

export function detectFeatures(): Features {
  return {
    simd: validates(PROBES.simd),
    relaxed: validates(PROBES.relaxed),
    threads: typeof SharedArrayBuffer === "function" && validates(PROBES.threads),
  };
}
