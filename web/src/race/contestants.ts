// Who runs: mechanisms of heed, each in an instance of its own, so that its memory is its own; plain
// loops; onnxruntime-web.

import type { Heed, Mechanism, Parameter } from "heed";
import { onnxPeers } from "../../../web_bench/peers/onnxruntime.mjs";
import { plainPeer } from "../../../web_bench/peers/plain_js.mjs";
import type { makeProblem } from "../../../web_bench/problem.mjs";
import { drawFloats, type ExampleTensor } from "../lib/example.js";
import { t } from "../lib/messages.js";
import { hashText } from "../lib/random.js";
import { realisticCall } from "../lib/realistic.js";
import { type RaceRow, SEED } from "./run.js";

export type Problem = ReturnType<typeof makeProblem>;

/** What is timed, and what can be asked afterwards. */
export interface Ready {
  call: () => unknown;
  /** Of the last call: [1, 1, length, head_dim]. */
  output: () => ArrayLike<number>;
  memory?: () => Pick<RaceRow, "heapBytes" | "scratchBytes">;
  dispose: () => unknown;
}

export interface Contestant {
  id: string;
  title: string;
  kind: RaceRow["kind"];
  sees: RaceRow["sees"];
  /** Its queries are its keys as well, and no token sees itself. */
  sharesKeys: boolean;
  prepare: (problem: Problem) => Promise<Ready> | Ready;
}

/** The inputs of a call: q, k and v of the race, and whatever else the mechanism must have. */
function callOf(heed: Heed, mechanism: Mechanism, causal: boolean, { q, k, v, shape }: Problem) {
  const parameters = new Map(heed.parameters.map((row): [string, Parameter] => [row.name, row]));
  const { inputs, params } = realisticCall(
    mechanism,
    parameters,
    shape.kv_len,
    (input, extents) => drawFloats(input, extents, hashText(`${SEED} ${input.name}`)),
    // Learned tensors that may be left out would be no filters when they are drawn.
    mechanism.capabilities.includes("approximates") ? "required" : "all",
  );
  const own: Record<string, ExampleTensor> = { q, k, v };
  for (const name of Object.keys(inputs))
    inputs[name] = own[name] ?? (inputs[name] as ExampleTensor);
  const masked = mechanism.params.includes("causal") ? { ...params, causal } : params;
  return { inputs, params: masked };
}

/** A mechanism in an instance of heed of its own. */
export function heedContestant(heed: Heed, id: string, causal: boolean): Contestant {
  const mechanism = heed.mechanisms.find((row) => row.id === id);
  if (!mechanism) throw new Error(`heed has no mechanism ${id}`);
  const { params, capabilities, inputs } = mechanism;
  const always = capabilities.includes("causal") && !params.includes("causal");
  return {
    id,
    title: mechanism.title,
    kind: "mechanism",
    sees: always || (causal && params.includes("causal")) ? "past" : "all",
    sharesKeys: !inputs.some(({ name }) => name === "k"),
    prepare: (problem) => {
      const call = callOf(heed, mechanism, causal, problem);
      let output: ArrayLike<number> = [];
      return {
        call: () => {
          output = heed.run(id, call.inputs, call.params).output.data as Float32Array;
        },
        output: () => output,
        memory: () => {
          const { scratchBytes } = heed.estimateCost(id, call.inputs, call.params);
          const { heapBytes } = heed.memory();
          return { heapBytes, ...(scratchBytes !== undefined && { scratchBytes }) };
        },
        dispose: () => {},
      };
    },
  };
}

type Peer = typeof plainPeer | (typeof onnxPeers)[number];
type OnnxRuntime = () => Promise<object>;

function peerContestant(peer: Peer, title: string, causal: boolean, onnx: OnnxRuntime): Contestant {
  const environment = { threads: 1, onnxWeb: onnx };
  return {
    id: peer.id,
    title,
    kind: "peer",
    sees: causal ? "past" : "all",
    sharesKeys: false,
    prepare: (problem) =>
      (peer.prepare as (...args: unknown[]) => Promise<Ready>)(problem, environment),
  };
}

const none: OnnxRuntime = () => Promise.reject(new Error("onnxruntime-web was not asked for"));

export const plainContestant = (causal: boolean): Contestant =>
  peerContestant(plainPeer, t`plain JavaScript`, causal, none);

/** onnxruntime-web in the two ways that fit: the standard's operator and its own. */
export function onnxContestants(causal: boolean, onnx: OnnxRuntime): Contestant[] {
  const titles = [
    ["onnxruntime_web_attention", t`onnxruntime Attention`],
    ["onnxruntime_web_multi_head", t`onnxruntime MultiHead`],
  ] as const;
  return titles.map(([id, title]) => {
    const peer = onnxPeers.find((row) => row.id === id);
    if (!peer) throw new Error(`web_bench has no peer ${id}`);
    return peerContestant(peer, title, causal, onnx);
  });
}
