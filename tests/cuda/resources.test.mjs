// What ptxas says of the kernels, without a GPU: each is compiled for sm_80 and sm_90a, and none may
// use local memory (a stack frame or spilled registers) but those that are not meant to be fast,
// which may. Registers are reported. The Hopper kernels are also disassembled: they use wgmma and TMA,
// and no more registers than setmaxnreg leaves them. So are the probes of the benchmark. Skipped where
// nvcc or cuobjdump (of the same toolkit; HEED_CUOBJDUMP names another) is missing. Run by
// `node --test tests/cuda/`; takes minutes.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const sources = ["cpp/src/cuda", "native_bench/cuda"].flatMap((folder) =>
  readdirSync(join(root, folder))
    .filter((file) => file.endsWith(".cu"))
    .map((file) => ({ file, path: join(root, folder, file) })),
);

/**
 * Kernels that do everything for one row or token at a time, and are not meant to be fast. Positions
 * take sines of any size, which have a frame.
 */
const plainKernels =
  /^(AttentionRows|RecurrentKernel|LevelKernel|StepBlocks (Rotate|PositionCode)$)/;

/** Three blocks of float32 on 128 columns: four places have no register, for two loads a tile. */
const spillsFew = /^FloatProducts, 128 columns/;

/** A program of the CUDA toolkit: the one on the PATH, or where the toolkit installs itself. */
function findProgram(name) {
  for (const program of [name, `/usr/local/cuda/bin/${name}`]) {
    try {
      if (program === name || existsSync(program)) {
        execFileSync(program, ["--version"], { stdio: "ignore" });
        return program;
      }
    } catch {
      // Not this one.
    }
  }
  return undefined;
}

/** What ptxas -v reports, one entry a kernel. */
function parseReport(text) {
  const pattern =
    /Compiling entry function '(\S+)'[\s\S]*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\s+ptxas info\s+: Used (\d+) registers/g;
  return [...text.matchAll(pattern)].map(([, name, stack, stores, loads, registers]) => ({
    name: readableName(name),
    frameBytes: Number(stack),
    spilledBytes: Number(stores) + Number(loads),
    registers: Number(registers),
  }));
}

/** "FloatProducts 64 x 64" of a mangled name, or the kernel's own name. */
function readableName(mangled) {
  const gradient = mangled.match(/(Query|Key|Bias)GradientKernel.*?Li(\d+)ELi(\d+)/);
  if (gradient) {
    const sums = ["both", "keys", "values"][mangled.match(/KeySumsE(\d)/)?.[1]];
    return `${gradient[1]}GradientKernel, ${gradient[2]} columns, tiles of ${gradient[3]}${sums ? `, ${sums}` : ""}`;
  }
  const products = mangled.match(/(Mma|Float)Products.*?Li(\d+)ELi(\d+)(ELb1)?/);
  if (products) {
    const rows = products[4] ? ", few rows" : "";
    return `${products[1]}Products, ${products[2]} columns, ${products[3]} keys${rows}`;
  }
  const hopper = hopperColumns(mangled);
  if (hopper) {
    const type = isFloat8(mangled) ? ", float8" : "";
    const plain = isPlain(mangled) ? ", plain" : "";
    return `Hopper${type}${plain}, ${hopper[0]} columns of keys, ${hopper[1]} of values`;
  }
  const sums = hopperSums(mangled);
  if (sums) {
    return `Hopper, gradients of ${sums.byKeys ? "keys and values" : "queries"}, ${sums.columns} columns`;
  }
  const chunk = mangled.match(/HopperChunkShape.*?TokenGatesE(\d).*?ChunkRowEndE(\d)/);
  if (chunk) {
    const gates = chunk[1] === "1" ? ", gates" : "";
    return `Hopper, chunks${gates}${chunk[2] === "1" ? ", normalized" : ""}`;
  }
  const decode = mangled.match(/DecodeBlocksI.*?(BFloat16|Float16)ELi(\d+)ELb(\d)E/);
  if (decode) {
    const pages = decode[3] === "1" ? ", pages" : "";
    return `Single queries, ${decode[1]}, ${decode[2]} columns${pages}`;
  }
  const chunks = mangled.match(/Chunk(Sums|Reads)I.*?(BFloat16|Float16)ELi(\d+)E/);
  if (chunks) return `Chunk${chunks[1]}, ${chunks[2]}, ${chunks[3]} features`;
  const gated = mangled.match(/Gated(ChunkTokens|Sums|Reads)I.*?ELi(\d+)E(?:Lb(\d)ELb(\d)E)?/);
  if (gated) {
    const decays = gated[3] === "1" ? ", decays of channels" : "";
    const delta = gated[4] === "1" ? ", delta" : "";
    return `Gated${gated[1]}, ${gated[2]} features${decays}${delta}`;
  }
  const recurrent = mangled.match(/(Recurrent|Random|Level)KernelI.*?ELi(\d+)E/);
  if (recurrent) return `${recurrent[1]}Kernel, ${16 * recurrent[2]} features`;
  const step = mangled.match(/StepBlocksI.*?\d+([A-Z][A-Za-z]*?)ParamsE/);
  if (step) return `StepBlocks ${step[1]}`;
  return (
    mangled.match(
      /(MergeSplits|Unpack|AttentionRows|ProjectKeys|CopyStateSums|LearningKernel|SpanBlocks|GatedScanBlocks|ConvertBlocks|DeltaBlocks|HeadSumBlocks|RowTableBlocks|WgmmaBlocks|MmaBlocks|FmaBlocks|SoftmaxBlocks|ReadBlocks|Normals)/,
    )?.[1] ?? mangled
  );
}

const isFloat8 = (mangled) => mangled.includes("Float8E4M3");

/** Whether a Hopper kernel goes without softcap and ALiBi. */
const isPlain = (mangled) => /HopperShape.*?ELb1E/.test(mangled);

/** Columns of keys and values of a Hopper kernel's mangled name. */
function hopperColumns(mangled) {
  return mangled
    .match(/HopperShape.*?Li(\d+)ELi(\d+)E/)
    ?.slice(1)
    .map(Number);
}

/** What a gradient kernel for Hopper sums, of its mangled name, and in how many columns. */
function hopperSums(mangled) {
  const [, columns, sums] = mangled.match(/HopperGradientShape.*?Li(\d+)E.*?HopperSumsE(\d)/) ?? [];
  return columns && { columns: Number(columns), byKeys: sums === "0" };
}

/** The products that a Hopper kernel is made of, by the columns of their results. */
function widthsOfProducts(mangled) {
  const sums = hopperSums(mangled);
  if (sums) return [sums.byKeys ? 48 : 80, sums.columns];
  const [columnsOfKeys, columns] = hopperColumns(mangled);
  const isLong = columnsOfKeys === 128 && isPlain(mangled) && !isFloat8(mangled); // tiles of 160
  if (columns <= 128) return [isLong ? 160 : 128, columns];
  // Sums of float8 are taken 64 columns at a time there.
  return [64, isFloat8(mangled) ? 64 : columns];
}

/** The instruction that multiplies, and the registers of the groups that compute and that load. */
function planOf(mangled) {
  if (isFloat8(mangled)) {
    return { product: (n) => `QGMMA.64x${n}x32.F32.E4M3.E4M3`, computes: 224, loads: 56 };
  }
  const isNarrow = hopperColumns(mangled)?.[0] === 64; // three groups compute
  const [computes, loads] = isNarrow ? [160, 32] : [232, 40];
  return { product: (n) => `HGMMA.64x${n}x16`, computes, loads };
}

async function compile(nvcc, path, arch, cubin) {
  const { stderr, stdout } = await promisify(execFile)(
    nvcc,
    [
      "-std=c++20",
      "-O3",
      "--expt-relaxed-constexpr",
      "-diag-suppress=554",
      `-I${root}`,
      `-I${join(root, "cpp")}`,
      `-I${join(root, "cpp/include")}`,
      `-arch=${arch}`,
      "-Xptxas=-v",
      "-cubin",
      "-o",
      cubin,
      path,
    ],
    { maxBuffer: 1 << 24 },
  );
  const text = stdout + stderr;
  // C7510 and its neighbours: products wait for each other, and nothing runs under them.
  assert.doesNotMatch(text, /wgmma\S* instructions are serialized/, `${path} on ${arch}`);
  return parseReport(text);
}

/** The largest number of a register in a piece of SASS. */
function highestRegister(sass) {
  return Math.max(...[...sass.matchAll(/\bR(\d+)\b/g)].map(([, number]) => Number(number)));
}

/** The machine code of every kernel of a file, its name in front. */
async function disassemble(cuobjdump, cubin) {
  const { stdout } = await promisify(execFile)(cuobjdump, ["-sass", cubin], { maxBuffer: 1 << 28 });
  return stdout.split(/Function : /).slice(1);
}

/** The matrix probes of the benchmark run the instructions that they are named after. */
async function checkProbes(cuobjdump, cubin) {
  const kernels = await disassemble(cuobjdump, cubin);
  const of = (name) => kernels.filter((sass) => sass.split("\n")[0].includes(name));
  assert.equal(of("WgmmaBlocks").length, 3, "float16, bfloat16 and float8");
  for (const sass of of("WgmmaBlocks")) {
    const float8 = isFloat8(sass.slice(0, sass.indexOf("\n")));
    assert.match(sass, float8 ? /QGMMA\.64x64x32\.F32\.E4M3\.E4M3/ : /HGMMA\.64x64x16/);
  }
  for (const sass of of("9MmaBlocks")) assert.match(sass, /HMMA\.16816/);
}

/** Attention in float32 multiplies on tensor cores. */
async function checkFloatProducts(cuobjdump, cubin) {
  for (const sass of await disassemble(cuobjdump, cubin)) {
    assert.match(sass, /HMMA\.1688\.F32\.TF32/, readableName(sass.slice(0, sass.indexOf("\n"))));
  }
}

/**
 * The instructions of a kernel, each with the counter of loads on their way that it raises (7: none)
 * and those that it waits for, a bit each: places of Hopper's encoding that NVIDIA does not document.
 */
function instructionsOf(sass) {
  const lines = sass.matchAll(
    /\*\/\s+(\S.*?);\s+\/\* 0x[0-9a-f]{16} \*\/\s+\/\* 0x([0-9a-f]{16})/g,
  );
  return [...lines].map(([, text, upper]) => {
    const control = Number(BigInt(`0x${upper}`) >> 41n);
    return { text, raises: (control >> 5) & 7, awaits: (control >> 11) & 63 };
  });
}

/** Between the first and the last load of keys and values of a first tile none of them is waited for. */
async function checkDecodeLoads(cuobjdump, cubin) {
  const kernels = await disassemble(cuobjdump, cubin);
  assert.equal(kernels.length, 8, "two types, widths, with pages and without");
  for (const sass of kernels) {
    const [, columns] = sass.match(/Li(\d+)ELb[01]E/);
    const instructions = instructionsOf(sass);
    const loads = instructions.flatMap(({ text }, n) => (/LDG\.E\.NA\.128/.test(text) ? [n] : []));
    const first = loads.slice(0, columns / 8); // 16 keys and 16 values, between 32 lanes
    const counters = first.reduce((bits, n) => bits | (1 << instructions[n].raises), 0);
    const waits = instructions
      .slice(first[0], first.at(-1) + 1)
      .filter(({ awaits }) => (awaits & counters) !== 0);
    assert.deepEqual(
      waits,
      [],
      `${readableName(sass.slice(0, sass.indexOf("\n")))} waits between its loads`,
    );
  }
}

/** Looks at the machine code of the Hopper kernels of a file. */
async function checkHopperCode(cuobjdump, cubin, count, diagnostic) {
  const kernels = await disassemble(cuobjdump, cubin);
  assert.equal(kernels.length, count);
  for (const sass of kernels) {
    const mangled = sass.slice(0, sass.indexOf("\n"));
    const name = readableName(mangled);
    const widths = widthsOfProducts(mangled);
    const plan = planOf(mangled);
    for (const n of widths) {
      assert.ok(sass.includes(plan.product(n)), `${name} multiplies with wgmma`);
    }
    assert.match(sass, /UTMALDG\.4D/, `${name} loads with TMA`);
    assert.doesNotMatch(sass, /\b(STL|LDL)\b/, `${name} uses local memory`);
    const takes = `USETMAXREG\\.TRY_ALLOC\\S* UP\\d+, 0x${plan.computes.toString(16)}`;
    assert.match(sass, new RegExp(takes), `${name} takes ${plan.computes} registers`);
    if (hopperSums(mangled)) checkGradientOrder(sass, name, widths[0]);
    else if (!isFloat8(mangled)) checkSoftmaxOrder(sass, name, widths[0], isPlain(mangled));
    // From here to where it ends, the code of the group that loads.
    const gives = `USETMAXREG\\.DEALLOC\\S* 0x${plan.loads.toString(16)}[\\s\\S]*?\\*/\\s+EXIT ;`;
    const producer = sass.match(new RegExp(gives))?.[0];
    assert.ok(producer, `${name} gives all but ${plan.loads} registers back`);
    const registers = [sass.replace(producer, ""), producer].map(
      (code) => highestRegister(code) + 1,
    );
    diagnostic(`${name}: registers up to ${registers[0]} (computes), ${registers[1]} (loads)`);
    assert.ok(
      registers[0] <= plan.computes && registers[1] <= plan.loads,
      `${name} uses ${registers}`,
    );
  }
}

/** The exponentials in a piece of machine code. */
const exponentialsIn = (sass) => sass.split("MUFU.EX2").length - 1;

/** The registers of the groups of the kernel for chunks: tokens, the state, its readers. */
const chunkGroups = { tokens: 96, state: 104, readers: 152 };

/** Looks at the machine code of the kernels for chunks, in which every group has a plan of its own. */
async function checkChunkCode(cuobjdump, cubin, diagnostic) {
  const kernels = await disassemble(cuobjdump, cubin);
  assert.equal(kernels.length, 4);
  for (const sass of kernels) {
    const name = readableName(sass.slice(0, sass.indexOf("\n")));
    const products = name.includes("normalized") ? ["64x64x16", "64x8x16"] : ["64x64x16"];
    for (const product of products)
      assert.ok(sass.includes(`HGMMA.${product}`), `${name} ${product}`);
    assert.match(sass, /UTMALDG\.4D/, `${name} loads with TMA`);
    assert.doesNotMatch(sass, /\b(STL|LDL)\b/, `${name} uses local memory`);
    const hex = (group) => `0x${chunkGroups[group].toString(16)}`;
    assert.match(sass, new RegExp(`USETMAXREG\\.TRY_ALLOC\\S* UP\\d+, ${hex("readers")}`));
    // From here to where it ends, the code of a group; what waits longer stands behind all of them.
    const codeOf = (group) =>
      sass.match(new RegExp(`USETMAXREG\\.DEALLOC\\S* ${hex(group)}[\\s\\S]*?\\*/\\s+EXIT ;`))?.[0];
    for (const group of ["tokens", "state"]) {
      const code = codeOf(group);
      assert.ok(code, `${name}: ${group} give registers back`);
      const registers = highestRegister(code) + 1;
      diagnostic(`${name}: ${group} have registers up to ${registers}`);
      assert.ok(registers <= chunkGroups[group], `${name}: ${group} use ${registers}`);
    }
    const registers = highestRegister(sass) + 1;
    diagnostic(`${name}: registers up to ${registers}`);
    assert.ok(registers <= chunkGroups.readers, `${name} uses ${registers}`);
  }
}

/**
 * Between the waits for the first scores and for the values of a tile, softmax: as many exponentials
 * as a thread has scores, half as many as keys, and as many again of softcap, which plain kernels do
 * without. ptxas would wait before them if it may.
 */
function checkSoftmaxOrder(sass, name, keys, plain) {
  const softmax = sass.split(/DEPBAR\.LE gsb0, 0x0/)[1];
  assert.ok(exponentialsIn(softmax) >= (plain ? keys / 2 : keys), `${name} waits before softmax`);
}

/**
 * Between the waits for scores and for gradients of weights, weights: as many exponentials as a thread
 * has cells, twice with those of softcap.
 */
function checkGradientOrder(sass, name, tile) {
  const weights = sass.split(/DEPBAR\.LE gsb0, 0x1/)[1].split(/DEPBAR\.LE gsb0, 0x0/)[0];
  assert.ok(exponentialsIn(weights) >= tile, `${name} waits before weights`);
}

test("TheReportIsRead", () => {
  const text = `ptxas info    : Compiling entry function '_ZN1KMmaProductsINS_8BFloat16ELi64ELi32EEE' for 'sm_80'
ptxas info    : Function properties for _ZN1K
    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads
ptxas info    : Used 254 registers, used 1 barriers`;
  assert.deepEqual(parseReport(text), [
    { name: "MmaProducts, 64 columns, 32 keys", frameBytes: 8, spilledBytes: 6, registers: 254 },
  ]);
});

const nvcc = findProgram("nvcc");
const cuobjdump = process.env.HEED_CUOBJDUMP ?? findProgram("cuobjdump");
for (const arch of ["sm_80", "sm_90a"]) {
  for (const { file, path } of sources) {
    const skip = nvcc === undefined && "nvcc is neither on the PATH nor in /usr/local/cuda/bin";
    test(`${file} keeps its registers on ${arch}`, { skip }, async (t) => {
      const folder = mkdtempSync(join(tmpdir(), "heed-cubin-"));
      t.after(() => rmSync(folder, { recursive: true }));
      const cubin = join(folder, `${file}.${arch}.cubin`);
      const kernels = await compile(nvcc, path, arch, cubin);
      if (file.startsWith("attention_")) {
        // One a width; of 16 bits two more, in which warps share the keys of few rows.
        assert.equal(kernels.length, file.includes("float32") ? 3 : 5, "kernels");
      }
      for (const { name, frameBytes, spilledBytes, registers } of kernels) {
        t.diagnostic(
          `${name}: ${registers} registers, frame ${frameBytes} bytes, spilled ${spilledBytes}`,
        );
        assert.doesNotMatch(name, /^_Z/, "readableName() knows every kernel");
        if (/^(Recurrent|Level)Kernel/.test(name)) {
          assert.ok(spilledBytes <= 16 && frameBytes <= 8, `${name} on ${arch} spills more`);
        }
        if (plainKernels.test(name)) continue;
        if (arch === "sm_90a" && spillsFew.test(name)) {
          assert.ok(spilledBytes <= 64 && frameBytes <= 16, `${name} on ${arch} spills more`);
          continue;
        }
        assert.equal(spilledBytes, 0, `${name} on ${arch} spills ${spilledBytes} bytes`);
        assert.equal(frameBytes, 0, `${name} on ${arch} has a frame of ${frameBytes} bytes`);
      }
      const skip = cuobjdump === undefined && "cuobjdump is neither on the PATH nor in CUDA's bin";
      if (/^(attention|gradient)_float32/.test(file)) {
        const check = () => checkFloatProducts(cuobjdump, cubin);
        await t.test(`${file} uses tensor cores`, { skip }, check);
      }
      if (file === "decode.cu" && arch === "sm_90a") {
        const check = () => checkDecodeLoads(cuobjdump, cubin);
        await t.test("keys and values of single queries travel together", { skip }, check);
      }
      const isProbe = file === "kernels.cu";
      if (!(isProbe || file.startsWith("hopper_")) || arch !== "sm_90a") return;
      if (isProbe) {
        await t.test("the probes multiply matrices", { skip }, () => checkProbes(cuobjdump, cubin));
        return;
      }
      if (file === "hopper_chunks.cu") {
        const check = (t) => checkChunkCode(cuobjdump, cubin, (text) => t.diagnostic(text));
        await t.test(`${file} is wgmma and TMA`, { skip }, check);
        return;
      }
      // 64, 128, 192 and 256 columns with and without softcap and ALiBi, or two kernels of gradients of
      // two.
      const count = file.startsWith("hopper_gradient") ? 4 : 8;
      await t.test(`${file} is wgmma and TMA`, { skip }, (t) =>
        checkHopperCode(cuobjdump, cubin, count, (text) => t.diagnostic(text)),
      );
    });
  }
}
