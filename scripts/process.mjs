// Child processes: run one and stream its output, capture its output, find a program.
import { spawn, spawnSync } from "node:child_process";
import { accessSync, constants as fileConstants, statSync } from "node:fs";
import { constants } from "node:os";
import { delimiter, join } from "node:path";

// `output` is all that the program printed; the message ends with `told`, what is not yet seen.
export class CommandError extends Error {
  constructor(command, args, status, output, told) {
    super(`${[command, ...args].join(" ")} ended with status ${status}${told && `\n${told}`}`);
    this.output = output;
  }
}

// Resolves with everything the program printed; `quiet` keeps it off the terminal until it fails.
export function run(command, args, { quiet = false, ...options } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
    const chunks = [];
    for (const [stream, sink] of [
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ]) {
      stream.on("data", (chunk) => {
        chunks.push(chunk);
        if (!quiet) sink.write(chunk);
      });
    }
    child.on("error", reject);
    child.on("close", (status, signal) => {
      const output = Buffer.concat(chunks).toString();
      if (status === 0) resolve(output);
      else reject(new CommandError(command, args, status ?? signal, output, quiet ? output : ""));
    });
  });
}

// Runs a program on this one's terminal, whose width and progress lines it sees; resolves with its exit status.
export function handOver(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: "inherit", ...options });
    child.on("error", reject);
    child.on("close", (status, signal) => resolve(status ?? 128 + constants.signals[signal]));
  });
}

// The trimmed standard output, or null when the program is missing or fails.
export function capture(command, args, options = {}) {
  const result = spawnSync(command, args, { encoding: "utf8", ...options });
  return result.status === 0 ? result.stdout.trim() : null;
}

// A word as a shell reads it back.
export const quoted = (word) => `'${word.replaceAll("'", `'\\''`)}'`;

export function which(program, path = process.env.PATH ?? "") {
  for (const folder of path.split(delimiter)) {
    const candidate = join(folder, program);
    try {
      accessSync(candidate, fileConstants.X_OK);
      if (statSync(candidate).isFile()) return candidate;
    } catch {}
  }
  return null;
}

export function isAtLeast(version, minimum) {
  const [have, want] = [version, minimum].map((text) => text.split(".").map(Number.parseFloat));
  for (let i = 0; i < want.length; ++i) {
    if ((have[i] ?? 0) !== want[i]) return (have[i] ?? 0) > want[i];
  }
  return true;
}
