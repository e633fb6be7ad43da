// What both entries, worker.ts (web) and node_worker.ts, export beside `spawn`.
export type { Transfer } from "./remote_arguments.js";
export type { Signal } from "./remote_client.js";
export type {
  CallOptions,
  Remote,
  RemoteAnalyze,
  RemoteArgument,
  RemoteAttend,
  RemoteAttention,
  RemoteAttribution,
  RemoteErasure,
  RemoteExplain,
  RemoteFunction,
  RemoteHeadSimilarity,
  RemoteHeed,
  RemoteLatentForward,
  RemoteLayerNorm,
  RemoteMultiHeadForward,
  RemoteObject,
  RemoteRun,
  RemoteTensor,
  RemoteTensorFunction,
  RemoteVarlen,
} from "./remote_heed.js";
export type { SpawnOptions } from "./spawn.js";
