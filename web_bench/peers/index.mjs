// The list of programs. To add one: a file in this folder and a line here.
import { heedPeers } from "./heed.mjs";
import { onnxPeers } from "./onnxruntime.mjs";
import { plainPeer } from "./plain_js.mjs";
import { tensorflowPeers } from "./tensorflow.mjs";

/**
 * @typedef {object} Peer
 * @property {string} id
 * @property {string} summary
 * @property {boolean} [native] not WebAssembly or JavaScript
 * @property {string[]} [places] where it runs; absent: everywhere
 * @property {(problem, environment) => Promise<string>} refuse why it cannot run the problem, or ""
 * @property {(problem, environment) => Promise<Prepared>} prepare what an application would keep between
 *   calls; every pass over queries, and over keys and values that are not resident, belongs in the call
 *
 * @typedef {object} Prepared
 * @property {() => unknown} call computes; may return a promise
 * @property {() => Float32Array} output of the last call, as [batch, heads, q_len, head_dim_v]
 * @property {() => unknown} dispose
 */

/** @type {Peer[]} */
export const peers = [...heedPeers, ...onnxPeers, ...tensorflowPeers, plainPeer];

/** The peers with these ids that run in a place; undefined: all of them. */
export function selectPeers(ids, place) {
  const unknown = ids?.find((id) => !peers.some((peer) => peer.id === id));
  if (unknown !== undefined) {
    throw new Error(`--peers: "${unknown}" is none of ${peers.map(({ id }) => id).join(", ")}`);
  }
  return peers.filter(
    ({ id, places }) =>
      (ids === undefined || ids.includes(id)) && (places === undefined || places.includes(place)),
  );
}
