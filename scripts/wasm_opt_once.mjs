// Binaryen's wasm-opt, which is not run again for what it has done. Modules with threads are linked for the web
// and for Node: the same WebAssembly with other JavaScript, and optimising it is most of a link.
//   node wasm_opt_once.mjs PROGRAM FOLDER ARGUMENTS     what PROGRAM made of ARGUMENTS is kept in FOLDER
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

const [program, folder, ...args] = process.argv.slice(2);

const isFile = (name) => existsSync(name) && statSync(name).isFile();

// The places in `args` of the one file that is read and of the one that is written; null where there are others.
function filesOf(args) {
  const output = args.indexOf("-o") + 1;
  const inputs = [...args.keys()].filter(
    (n) => n !== output && !args[n].startsWith("-") && isFile(args[n]),
  );
  const writesMore = args.some((arg) => /source-map|symbolmap/.test(arg));
  return output > 0 && inputs.length === 1 && !writesMore ? { input: inputs[0], output } : null;
}

function keyOf(args, { input, output }) {
  const named = args.map((arg, n) => (n === input || n === output ? "" : arg));
  const hash = createHash("sha256").update(JSON.stringify(named)).update(`${input} ${output}\n`);
  return hash.update(readFileSync(args[input])).digest("hex");
}

function runProgram() {
  const stdio = ["inherit", "pipe", "inherit"];
  const { status, stdout, error } = spawnSync(program, args, { stdio, maxBuffer: 2 ** 30 });
  if (error) throw error;
  process.stdout.write(stdout);
  process.exitCode = status ?? 1;
  return stdout;
}

// Another process may keep the same meanwhile: files appear whole.
function keep(write, name) {
  const unfinished = `${name}.${process.pid}`;
  write(unfinished);
  renameSync(unfinished, name);
}

const files = filesOf(args);
if (files === null) {
  runProgram();
} else {
  const kept = join(folder, keyOf(args, files));
  const said = `${kept}.txt`;
  if (existsSync(said)) {
    copyFileSync(`${kept}.wasm`, args[files.output]);
    process.stdout.write(readFileSync(said));
  } else {
    const stdout = runProgram();
    if (process.exitCode === 0) {
      keep((name) => copyFileSync(args[files.output], name), `${kept}.wasm`);
      keep((name) => writeFileSync(name, stdout), said);
    }
  }
}
