// The run, in whichever engine this module is loaded: verify every program on every case, time those
// that are right. Knows nothing of Node or pages: `environment` supplies the packages.
import { makeCases, nameOf } from "./cases.mjs";
import { measureInterleaved, warmUp } from "./measure.mjs";
import { measurePeaks } from "./peak.mjs";
import { selectPeers } from "./peers/index.mjs";
import { costOf, makeProblem } from "./problem.mjs";
import { boundOf, largestError, oracleRows } from "./verify.mjs";

/** The longest that the small problem gets: odd, so that tiles have tails. */
const SMALL_LENGTH = 95;
const PATIENCE_SECONDS = 120;
const REST_MS = 20;

/**
 * @typedef {object} Environment
 * @property {"node" | "chromium"} place
 * @property {number} threads
 * @property {(simd: "auto" | "plain") => Promise<object>} heed an instance of the package
 * @property {() => Promise<object>} onnxWeb
 * @property {() => Promise<object>} onnxNode
 * @property {() => Promise<object>} tensorflow
 */

const smaller = (one) => ({
  ...one,
  shape: {
    ...one.shape,
    q_len: Math.min(one.shape.q_len, SMALL_LENGTH),
    kv_len: Math.min(one.shape.kv_len, SMALL_LENGTH),
  },
});

/** The promise, or a failure when nothing comes of it: packages that wait forever must not end the run. */
function soon(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    const message = `${what}: no answer for ${PATIENCE_SECONDS} s`;
    timer = setTimeout(() => reject(new Error(message)), 1000 * PATIENCE_SECONDS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Prepares and warms up. `warm` is the quickest call in milliseconds. The caller disposes. */
async function tryOut(peer, problem, environment, warmSeconds = 0) {
  const prepared = await soon(peer.prepare(problem, environment), "prepare");
  try {
    const warm = await warmUp(() => soon(prepared.call(), "call"), warmSeconds);
    return { prepared, warm };
  } catch (error) {
    await prepared.dispose();
    throw error;
  }
}

/** Compares the result of the last call with the reference's rows. */
function judge(row, prepared, problem, rows, maxError) {
  const error = largestError(prepared.output(), rows, problem);
  const bound = boundOf(problem, maxError);
  row.rows_verified = (row.rows_verified ?? 0) + rows.length;
  if (row.max_error === undefined || error / bound > row.max_error / row.error_bound) {
    row.max_error = error;
    row.error_bound = bound;
  }
  if (error <= bound) return true;
  row.status = "wrong";
  row.reason = `max error ${error.toExponential(2)} exceeds the bound ${bound.toExponential(2)}`;
  return false;
}

/** Remembers how fast each program was, to foresee calls that would take minutes. */
class Pace {
  #gflops = new Map();

  foresee(peer, flop) {
    const gflops = this.#gflops.get(peer.id);
    return gflops === undefined ? 0 : flop / gflops / 1e9;
  }
  learn(peer, gflops) {
    this.#gflops.set(peer.id, gflops);
  }
}

class Benchmark {
  constructor(options, environment) {
    this.options = options;
    this.environment = environment;
    this.pace = new Pace();
    this.peaks = options.verifyOnly ? [] : measurePeaks();
  }

  /** Of what one thread of the engine reaches; native programs and several threads have no such peak. */
  fractionOfPeak(row, peer) {
    const peak = Math.max(...this.peaks.map(({ gflops }) => gflops));
    if (row.threads > 1 || peer.native || !(peak > 0)) return {};
    return { fraction_of_fma_peak: row.gflops / peak };
  }

  async verifySmall(row, peer, one) {
    const problem = makeProblem(smaller(one), this.options.seed);
    const { prepared } = await tryOut(peer, problem, this.environment);
    try {
      return judge(row, prepared, problem, await this.oracle(problem), this.options.maxError);
    } finally {
      await prepared.dispose();
    }
  }

  async oracle(problem) {
    const heed = await this.environment.heed("auto");
    return oracleRows(problem, (id, inputs, params) => heed.reference(id, inputs, params));
  }

  /** A row, and what is timed of it when it is right. */
  async candidate(peer, one, problem, rows) {
    const { place } = this.environment;
    const row = {
      case: `${place}/${nameOf(one)}`,
      place,
      group: one.group,
      mechanism: "scaled_dot_product",
      dtype: "float32",
      shape: one.shape,
      resident: one.resident,
      threads: one.threads,
      peer: peer.id,
      status: "refused",
    };
    row.reason = await peer.refuse(problem, this.environment);
    const seconds = this.pace.foresee(peer, costOf(one).flop);
    if (row.reason === "" && seconds > 3 * this.options.plan.max_seconds) {
      row.reason = `a call would take about ${seconds.toFixed(0)} s`;
    }
    if (row.reason !== "") return { row };
    row.status = "verified";
    delete row.reason;
    try {
      if (!(await this.verifySmall(row, peer, one))) return { row };
      const { warm_seconds } = this.options.plan;
      const { prepared, warm } = await tryOut(peer, problem, this.environment, warm_seconds);
      if (judge(row, prepared, problem, rows, this.options.maxError)) {
        return { row, peer, prepared, warm, call: prepared.call };
      }
      await prepared.dispose();
    } catch (error) {
      row.status = "failed";
      row.reason = String(error?.message ?? error).slice(0, 300);
    }
    return { row };
  }

  async runCase(one) {
    const problem = makeProblem(one, this.options.seed);
    const rows = await this.oracle(problem);
    const candidates = [];
    for (const peer of selectPeers(this.options.peers, this.environment.place)) {
      candidates.push(await this.candidate(peer, one, problem, rows));
    }
    const right = candidates.filter(({ prepared }) => prepared !== undefined);
    const results = this.options.verifyOnly
      ? []
      : await measureInterleaved(right, this.options.plan, one.threads > 1 ? REST_MS : 0);
    const { flop, bytes } = costOf(one);
    results.forEach(({ ms, reps }, index) => {
      const { row, peer } = right[index];
      const rate = (count) => count / ms.median / 1e6;
      Object.assign(row, { status: "timed", ms, reps, flop, bytes });
      Object.assign(row, { gflops: rate(flop), gbps: rate(bytes) });
      Object.assign(row, this.fractionOfPeak(row, peer));
      this.pace.learn(peer, row.gflops);
    });
    for (const { prepared } of right) await prepared.dispose();
    return candidates.map(({ row }) => row);
  }
}

/**
 * @param options {groups, lengths, filter, threads, peers, seed, plan, maxError, verifyOnly}
 * @param {Environment} environment
 * @param {(what: string, done: number, total: number) => void} progress
 * @returns the rows, the programs, which build of heed was used, and the engine's peaks
 */
export async function runBenchmark(options, environment, progress = () => {}) {
  const cases = makeCases(options);
  const benchmark = new Benchmark(options, environment);
  const rows = [];
  for (const [done, one] of cases.entries()) {
    progress(`${environment.place}/${nameOf(one)}`, done, cases.length);
    rows.push(...(await benchmark.runCase(one)));
  }
  const { variant, simd } = await environment.heed("auto");
  const used = selectPeers(options.peers, environment.place);
  const peers = used.map(({ id, summary }) => ({ id, summary, details: "" }));
  return { rows, peers, variant, simd, peaks: benchmark.peaks };
}
