// What one thread of this engine can multiply and add at most: chains of float32 vectors that never
// leave the registers. The module is written here byte by byte, so that no compiler is in between.

const CHAINS = 12;
const ROUNDS = 200_000;
const V128 = 0x7b;
const I32 = 0x7f;
const F32 = 0x7d;

function unsigned(value) {
  const bytes = [];
  let rest = value;
  for (; rest > 127; rest >>>= 7) bytes.push((rest & 127) | 128);
  return [...bytes, rest];
}

const section = (id, bytes) => [id, ...unsigned(bytes.length), ...bytes];
const simd = (opcode) => [0xfd, ...unsigned(opcode)];
const get = (local) => [0x20, local];
const set = (local) => [0x21, local];

/** acc = acc * x + y: one rounding with relaxed SIMD, or two. */
const STEPS = { relaxed: [simd(0x105)], plain: [simd(0xe6), simd(0xe4)] };

/** Local 0 counts rounds; 1 to CHAINS are the chains; then x and y. */
function body(simdKind) {
  const [x, y] = [CHAINS + 1, CHAINS + 2];
  const chains = Array.from({ length: CHAINS }, (_, n) => n + 1);
  const constant = (value) => [
    0x43,
    ...new Uint8Array(Float32Array.of(value).buffer),
    ...simd(0x13),
  ];
  const [first, second = []] = STEPS[simdKind];
  const step = (chain) =>
    simdKind === "relaxed"
      ? [...get(chain), ...get(x), ...get(y), ...first, ...set(chain)]
      : [...get(chain), ...get(x), ...first, ...get(y), ...second, ...set(chain)];
  const countDown = [...get(0), 0x41, 1, 0x6b, 0x22, 0]; // local.tee: what br_if looks at
  const sum = chains.slice(1).flatMap((chain) => [...get(chain), ...simd(0xe4)]);
  return [
    ...[1, ...unsigned(CHAINS + 2), V128],
    ...chains.flatMap((chain) => [...constant(chain), ...set(chain)]),
    ...[...constant(0.5), ...set(x), ...constant(0.25), ...set(y)],
    ...[0x03, 0x40, ...chains.flatMap(step), ...countDown, 0x0d, 0, 0x0b],
    ...[...get(1), ...sum, ...simd(0x1f), 0, 0x0b],
  ];
}

/** (rounds: i32) => f32, exported as "run". */
export function peakModule(simdKind) {
  const code = body(simdKind);
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 1, I32, 1, F32]),
    ...section(3, [1, 0]),
    ...section(7, [1, 3, ...new TextEncoder().encode("run"), 0, 0]),
    ...section(10, [1, ...unsigned(code.length), ...code]),
  ]);
}

/**
 * The highest of repeated runs in GFLOP/s, for each kind of SIMD that the engine has. Engines compile a
 * loop again while it runs, so the first of the runs are slow.
 * @returns {{target: "relaxed" | "plain", threads: 1, gflops: number}[]}
 */
export function measurePeaks({ runs = 60, rounds = ROUNDS } = {}) {
  return ["relaxed", "plain"].flatMap((target) => {
    const bytes = peakModule(target);
    if (!WebAssembly.validate(bytes)) return [];
    const { run } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
    let least = Infinity;
    for (let n = 0; n < runs; n++) {
      const begin = performance.now();
      run(rounds);
      least = Math.min(least, performance.now() - begin);
    }
    return [{ target, threads: 1, gflops: (2 * 4 * CHAINS * rounds) / least / 1e6 }];
  });
}
