// What the programs beside heed are, for the introduction of a run that has them.
import { t } from "../lib/messages.js";

/** By the name of a program, or by its beginning. */
const WORDS: Readonly<Record<string, string>> = {
  heed_hopper: t`is heed’s kernel for Hopper`,
  cudnn: t`is one call of NVIDIA’s cuDNN`,
  cublas: t`is cuBLAS with a softmax between two products`,
  torch: t`is PyTorch’s`,
  xsimd: t`is an independent tiled attention in another SIMD library`,
  libtorch: t`is PyTorch`,
  onednn: t`is one fused call of oneDNN`,
  ort: t`is one call of ONNX Runtime`,
  ggml: t`is the attention of ggml, as llama.cpp computes it`,
  blas: t`is OpenBLAS with a softmax between two products`,
  plain_loops: t`holds the whole matrix of scores as a textbook would`,
};

export interface NamedPeer {
  peer: string;
  words: string;
}

/** Those of a run's programs that need words, in the order of its rows. */
export function namedPeers(peers: readonly string[]): NamedPeer[] {
  return peers.flatMap((peer) => {
    const words = WORDS[peer] ?? WORDS[peer.split("_")[0] ?? ""];
    return words === undefined ? [] : [{ peer, words }];
  });
}
