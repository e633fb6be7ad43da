// What a committed run is called where it is chosen: by day and machine, and as far as others share these, by
// what it measured, its clock and its commit.
import { t } from "../lib/messages.js";
import { type Context, clockWords, contextTitle, distinct } from "./results.js";

/** By the part of a file's name between commit and clock. */
const MEASURED: Readonly<Record<string, string>> = {
  "": t`many lengths`,
  approximation: t`approximations`,
  avx2: t`exact attention with AVX2`,
  backward: t`gradients`,
  "backward-avx2": t`gradients with AVX2`,
  "backward-mechanisms": t`gradients of every mechanism`,
  "backward-threads": t`gradients on one and two threads`,
  calls: t`the shortest calls`,
  "cuda-backward": t`gradients on a GPU`,
  "cuda-base-path": t`the kernel for every GPU`,
  "cuda-decoding": t`decoding on a GPU`,
  "cuda-float8": t`prompts in float8 too`,
  "cuda-prompts": t`prompts on a GPU`,
  "cuda-recurrent": t`recurrent mechanisms on a GPU`,
  curves: t`time against length`,
  decode: t`decoding`,
  families: t`linear and recurrent mechanisms`,
  "head-dims": t`sizes of a head`,
  layers: t`layers`,
  mechanisms: t`every mechanism`,
  patterns: t`patterns of pairs`,
  "patterns-avx2": t`patterns of pairs with AVX2`,
  peers: t`beside other programs`,
  "all-peers": t`beside ONNX Runtime and ggml too`,
  "peers-bfloat16": t`beside other programs in bfloat16`,
  products: t`matrix products`,
  recurrent: t`recurrent mechanisms`,
  "recurrent-avx2": t`recurrent mechanisms with AVX2`,
  "recurrent-avx512": t`recurrent mechanisms with AVX-512`,
  short: t`short texts`,
  steps: t`single steps`,
  threads: t`one and two threads`,
  types: t`types of numbers`,
};

/** A file that is called otherwise says so itself. */
function measuredBy({ file }: Context): string {
  const [, what = ""] =
    file.match(/^[\d-]+_[^_]+_[0-9a-f]+_(?:(.+?)_)??(?:cpu-time|wall)?\.json$/) ??
    file.match(/^[\d-]+_[^_]+_[0-9a-f]+_(.+)\.json$/) ??
    [];
  return MEASURED[what] ?? what.replaceAll("-", " ");
}

/** One for each run, all different. */
export function runTitles(runs: readonly Context[]): string[] {
  const parts: readonly ((run: Context) => string)[] = [
    measuredBy,
    clockWords,
    ({ commit }) => t`commit ${commit.slice(0, 7)}`,
    ({ file }) => file,
  ];
  let titles = runs.map(contextTitle);
  for (const part of parts) {
    if (distinct(titles).length === titles.length) break;
    const shared = (title: string) => titles.filter((other) => other === title).length > 1;
    titles = titles.map((title, at) => {
      const run = runs[at];
      return run && shared(title) ? `${title} · ${part(run)}` : title;
    });
  }
  return titles;
}
