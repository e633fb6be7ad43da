// A small graph of ten nodes: every node averages its neighbours, weighted by a softmax over the
// edges that arrive at it.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";

export const NODES = 10;
export const DIM = 4;

/** Places in a box of 100 x 100. */
export const PLACES: readonly (readonly [x: number, y: number])[] = [
  [14, 30],
  [32, 12],
  [34, 46],
  [12, 62],
  [52, 28],
  [54, 64],
  [34, 84],
  [76, 14],
  [84, 46],
  [76, 82],
];

export type Link = readonly [number, number];

/** Neighbours, each once. */
export const LINKS: readonly Link[] = [
  [0, 1],
  [0, 2],
  [0, 3],
  [1, 2],
  [1, 4],
  [2, 4],
  [2, 5],
  [3, 6],
  [3, 2],
  [4, 7],
  [4, 8],
  [4, 5],
  [5, 8],
  [5, 9],
  [5, 6],
  [7, 8],
  [8, 9],
  [6, 9],
];

/** Both directions and every node itself: [source, target]. */
export const directed = (links: readonly Link[]): Link[] => [
  ...links.flatMap(([a, b]): Link[] => [
    [a, b],
    [b, a],
  ]),
  ...PLACES.map((_, node): Link => [node, node]),
];

export const draw = (name: string, count: number): Float32Array => {
  const normal = normalSource(hashText(`graph ${name}`));
  return Float32Array.from({ length: count }, () => 0.7 * normal());
};

export const FEATURES = floats(draw("features", NODES * DIM), [1, 1, NODES, DIM]);
export const QUERIES = floats(draw("queries", NODES * DIM), [1, 1, NODES, DIM]);

export type GraphScore = "gat" | "gatv2";

export interface Attended {
  called: Called;
  edges: readonly Link[];
  /** One weight per edge. */
  weights: Float32Array;
  /** The neighbour with the largest weight, for each node. */
  favourite: number[];
}

export function attendGraph(heed: Heed, links: readonly Link[], graphScore: GraphScore): Attended {
  const edges = directed(links);
  const width = graphScore === "gat" ? 2 * DIM : DIM;
  const inputs = {
    q: QUERIES,
    k: FEATURES,
    v: FEATURES,
    edges: { data: Int32Array.from(edges.flat()), shape: [edges.length, 2] },
    scoreWeight: floats(draw("vector", 2 * DIM).subarray(0, width), [1, width]),
  };
  const called = make(heed, { id: "graph", inputs, params: { graphScore, returnWeights: true } });
  const weights = called.results.weights?.data as Float32Array;
  const favourite = PLACES.map((_, node) => {
    const own = edges.map((edge, at) => ({ edge, at })).filter(({ edge }) => edge[1] === node);
    own.sort((a, b) => (weights[b.at] as number) - (weights[a.at] as number));
    return own[0]?.edge[0] ?? node;
  });
  return { called, edges, weights, favourite };
}
