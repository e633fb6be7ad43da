// The command line of npm run bench:web.
import { statSync } from "node:fs";
import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { typedPath } from "../scripts/command_line.mjs";
import { groupNames, makeCases } from "./cases.mjs";
import { selectPeers } from "./peers/index.mjs";

const FULL = {
  groups: groupNames.join(","),
  threads: "1",
  places: "node,chromium",
  filter: "",
  reps: "10",
  "warm-time": "0.3",
  "min-time": "0.5",
  "max-time": "10",
  seed: "1",
  "cold-starts": "9",
};

/** Seconds, for "does it work?"; its times say nothing. */
const QUICK = {
  ...FULL,
  groups: "forward,causal,decode",
  lengths: "48",
  "cold-starts": "1",
  reps: "2",
  "warm-time": "0",
  "min-time": "0",
};

const FLAGS = {
  ...Object.fromEntries(Object.keys(QUICK).map((name) => [name, { type: "string" }])),
  peers: { type: "string" },
  json: { type: "string" },
  quick: { type: "boolean" },
  "verify-only": { type: "boolean" },
};

function number(name, text, least) {
  const value = Number(text);
  if (text.trim() !== "" && value >= least) return value;
  throw new Error(`--${name}: "${text}" is not a number of at least ${least}`);
}

const counts = (name, text) =>
  text?.split(",").map((item) => {
    const value = number(name, item, 1);
    if (Number.isInteger(value)) return value;
    throw new Error(`--${name}: "${item}" is not a whole number`);
  });

function places(text) {
  const names = text.split(",");
  const unknown = names.find((place) => !["node", "chromium"].includes(place));
  if (unknown === undefined) return names;
  throw new Error(`--places: "${unknown}" is not node or chromium`);
}

/** A file that can be written in the end: a run takes minutes. */
function report(typed) {
  const path = typedPath(typed);
  if (path === undefined) return undefined;
  const kind = (at) => statSync(at, { throwIfNoEntry: false });
  if (typed === "" || kind(path)?.isDirectory())
    throw new Error(`--json: "${typed}" names no file`);
  if (!kind(dirname(path))?.isDirectory()) throw new Error(`--json: there is no ${dirname(path)}`);
  return path;
}

/** Throws where no program, or no case, is left. */
function refuseNothing({ places, threads, run }) {
  if (places.every((place) => selectPeers(run.peers, place).length === 0)) {
    throw new Error(`--peers: none of ${run.peers.join(", ")} runs in ${places.join(" or ")}`);
  }
  if (threads.every((count) => makeCases({ ...run, threads: count }).length === 0)) {
    throw new Error(`--filter: no case matches "${run.filter}"`);
  }
}

/**
 * @param {string[]} args
 * @returns {{places: string[], threads: number[], json: string | undefined,
 *   coldStarts: number, run: object}} `run` is what
 *   runBenchmark() takes, but for the thread count
 */
export function readOptions(args) {
  const given = parseArgs({ args, options: FLAGS }).values;
  const values = { ...(given.quick ? QUICK : FULL), ...given };
  const options = {
    places: places(values.places),
    threads: counts("threads", values.threads),
    json: report(values.json),
    coldStarts: number("cold-starts", values["cold-starts"], 0),
    run: {
      groups: values.groups.split(","),
      lengths: counts("lengths", values.lengths),
      filter: values.filter,
      peers: values.peers?.split(","),
      seed: number("seed", values.seed, 0),
      verifyOnly: values["verify-only"] ?? false,
      plan: {
        warm_seconds: number("warm-time", values["warm-time"], 0),
        min_reps: number("reps", values.reps, 1),
        min_seconds: number("min-time", values["min-time"], 0),
        max_seconds: number("max-time", values["max-time"], 0),
      },
    },
  };
  refuseNothing(options);
  return options;
}
