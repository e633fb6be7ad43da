import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Heed, load } from "heed";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { OUTPUT_SLOTS, runCase } from "./onnx_attention.js";
import { CONV_SLOTS, runConv } from "./onnx_conv.js";
import { type Case, type OnnxTensor, readManifest, readTensor } from "./onnx_files.js";
import { runFlex } from "./onnx_flex.js";
import { LINEAR_SLOTS, runLinear } from "./onnx_linear.js";
import { NORM_SLOTS, runNorm } from "./onnx_norms.js";
import { runRotary } from "./onnx_rotary.js";
import { Tally } from "./tally.js";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const data = process.env.HEED_CONFORMANCE ?? `${repository}../shared/conformance`;
const SUITES = ["onnx_attention", "onnx_attention_opset25", "onnx_norms"];

type Outputs = Partial<Record<string, { data: ArrayLike<number>; shape: readonly number[] }>>;

/** How to run an operator, and what its outputs are called, in their order. */
interface Runner {
  run: (heed: Heed, testCase: Case, tensors: OnnxTensor[]) => Outputs;
  slots: readonly string[];
}

const NORM: Runner = { run: runNorm, slots: NORM_SLOTS };

const RUNNERS: Record<string, Runner> = {
  Attention: { run: runCase, slots: OUTPUT_SLOTS },
  CausalConvWithState: { run: runConv, slots: CONV_SLOTS },
  FlexAttention: { run: runFlex, slots: OUTPUT_SLOTS },
  LinearAttention: { run: runLinear, slots: LINEAR_SLOTS },
  RotaryEmbedding: { run: runRotary, slots: OUTPUT_SLOTS },
  Softmax: NORM,
  LogSoftmax: NORM,
  LayerNormalization: NORM,
  RMSNormalization: NORM,
};

const tally = new Tally("onnx");

/** The tolerances of the ONNX runner; half precision has 11 bits. */
const tolerance = (dtype: string): { relative: number; absolute: number } =>
  dtype === "float16" ? { relative: 1e-2, absolute: 1e-3 } : { relative: 1e-3, absolute: 1e-7 };

function expectSame(name: string, got: ArrayLike<number>, wanted: OnnxTensor): void {
  const { relative, absolute } = tolerance(wanted.dtype);
  expect(got.length, name).toBe(wanted.data.length);
  wanted.data.forEach((value, i) => {
    const mine = got[i] as number;
    const close =
      Object.is(mine, value) || Math.abs(mine - value) <= absolute + relative * Math.abs(value);
    if (!close) expect.fail(`${name}[${i}]: got ${mine}, wanted ${value}`);
  });
}

function checkCase(heed: Heed, folder: string, testCase: Case): void {
  const files = `${folder}/${testCase.case}/test_data_set_0`;
  const inputs = testCase.inputs.map(({ file }) => readTensor(`${files}/${file}`));
  const runner = RUNNERS[testCase.nodes[0]?.op ?? ""];
  if (runner === undefined) throw new Error(`${testCase.case} has no runner`);
  const outputs = runner.run(heed, testCase, inputs);
  const names = testCase.nodes[0]?.outputs ?? [];
  let next = 0;
  names.forEach((name, slot) => {
    if (name === "") return;
    const wanted = readTensor(`${files}/${testCase.outputs[next++]?.file}`);
    const key = runner.slots[slot];
    const got = key && outputs[key];
    if (got === undefined) throw new Error(`no output for ${name}`);
    expect(got.shape, name).toEqual(wanted.shape);
    // The cache is copied, never computed: its bits must not change.
    if (key === "present_key" || key === "present_value") {
      expect(Array.from(got.data), name).toEqual(wanted.data);
    } else expectSame(name, got.data, wanted);
  });
  expect(next, "every stored output is compared").toBe(testCase.outputs.length);
}

describe.each(SUITES)("%s", (suite) => {
  const folder = `${data}/${suite}`;
  if (!existsSync(`${folder}/manifest.json`)) {
    it.skip(`has no data at ${folder} (set HEED_CONFORMANCE)`, () => {});
    return;
  }
  let heed: Heed;
  beforeAll(async () => {
    heed = await load({ threads: 1 });
  });
  for (const testCase of readManifest(folder)) {
    const op = testCase.nodes[0]?.op ?? "none";
    const reason = op in RUNNERS ? undefined : `${op} is unknown`;
    const opset = suite.endsWith("25") ? `${op}, windows of opset 25` : op;
    const pass = tally.announce(opset, reason);
    if (reason === undefined) {
      it(testCase.case, () => {
        checkCase(heed, folder, testCase);
        pass();
      });
    } else it.skip(`${testCase.case} (${reason})`, () => {});
  }
});

afterAll(() => tally.finish());
