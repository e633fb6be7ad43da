// What both entries, worker.ts (web) and node_worker.ts, export beside `spawn`.
export type { Transfer } from "./remote_arguments.js";
export type { Signal } from "./remote_client.js";
export type {
  CallOptions,
  Remote,
  RemoteArgument,
  RemoteAttention,
  RemoteFunction,
  RemoteHeed,
  RemoteObject,
  RemoteRun,
  RemoteTensor,
  RemoteTensorFunction,
} from "./remote_heed.js";
export type { SpawnOptions } from "./spawn.js";
