// Every script says what it takes, and refuses in one line what it does not, before it sets up or builds anything.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { fstatSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { handOver } from "../../scripts/process.mjs";
import { root } from "../../scripts/toolchain.mjs";

function node(args, options = {}) {
  const child = spawn(process.execPath, args, { cwd: root, ...options });
  const said = { out: "", error: "" };
  child.stdout.on("data", (text) => {
    said.out += text;
  });
  child.stderr.on("data", (text) => {
    said.error += text;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, ...said }));
  });
}

const call = (script, args) => node([join(root, script), ...args]);

const scripts = [
  ...["bench_web", "build", "check", "check_engines", "release", "serve", "start", "test"].map(
    (name) => `scripts/${name}.mjs`,
  ),
  "language_model/train.mjs",
];

describe("a script", { concurrency: 2 }, () => {
  for (const script of scripts) {
    test(`${script} prints what heads it for --help`, async () => {
      const { status, out, error } = await call(script, ["--help"]);
      assert.deepEqual([status, error], [0, ""]);
      assert.match(out, /^[A-Za-z][^\n]*\n[\s\S]*(npm|node) /);
      assert.doesNotMatch(out, /^(\/\/|import)/m);
    });
  }

  const mistakes = [
    ...scripts.map((script) => [script, ["--chek"], "Unknown option '--chek'"]),
    ["scripts/test.mjs", ["--only", ""], 'no step ""; there are: native, ctest'],
    ["scripts/test.mjs", ["--only", "layout,"], 'no step ""'],
    ["scripts/test.mjs", ["--only", "tsan"], 'no step "tsan"'],
    ["scripts/build.mjs", ["wsam"], 'no part "wsam"; there are: native, wasm, package, web'],
    [
      "scripts/serve.mjs",
      [".", "--port", "abc"],
      '--port: "abc" is not a whole number from 0 to 65535',
    ],
    ["scripts/serve.mjs", [".", "--port", "99999"], '--port: "99999"'],
    ["scripts/serve.mjs", ["no/such/folder"], "there is no folder no/such/folder"],
    ["scripts/start.mjs", ["--port", ""], '--port: "" is not'],
    ["scripts/bench_web.mjs", ["--peers", "nobody"], '--peers: "nobody" is none of heed'],
    ["scripts/bench_web.mjs", ["--groups", "nope"], '--groups: "nope" is none of forward'],
    ["scripts/bench_web.mjs", ["--filter", "zzz"], '--filter: no case matches "zzz"'],
    ["scripts/bench_web.mjs", ["--json", "/nonexist/x"], "--json: there is no /nonexist"],
    ["scripts/check_engines.mjs", ["--engine", "lynx"], 'no --engine "lynx"'],
    ["language_model/train.mjs", ["--steps", "some"], '--steps: "some" is not a whole number of'],
    ["language_model/train.mjs", ["--text", "/nonexist/x"], "--text: there is no /nonexist/x"],
  ];
  for (const [script, args, wanted] of mistakes) {
    test(`${script} refuses ${args.join(" ")}`, async () => {
      const { status, out, error } = await call(script, args);
      assert.deepEqual([status, out], [2, ""]);
      assert.ok(error.startsWith(`heed: ${wanted}`), error);
      assert.equal(error.trimEnd().split("\n").length, 1, error);
    });
  }
});

test("PathsCountFromWhereTheCommandWasTyped", async () => {
  const module = JSON.stringify(new URL("../../scripts/command_line.mjs", import.meta.url).href);
  const folder = async (INIT_CWD) => {
    const script = `import(${module}).then((m) => console.log(m.typedPath("a"), m.typedFolder))`;
    const env = { ...process.env, INIT_CWD };
    return (await node(["-e", script], { cwd: tmpdir(), env })).out.trim();
  };
  assert.equal(await folder("/some/where"), "/some/where/a /some/where");
  assert.equal(await folder(""), `${join(tmpdir(), "a")} ${tmpdir()}`);
});

test("AProgramThatIsHandedOverKeepsItsStatusAndItsTerminal", async () => {
  const same = `require("node:fs").fstatSync(2).ino === ${fstatSync(2).ino}`;
  const script = `process.exit(${same} ? 3 : 9)`;
  assert.equal(await handOver(process.execPath, ["-e", script]), 3);
  const dying = "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 10000)";
  assert.equal(await handOver(process.execPath, ["-e", dying]), 128 + 15);
  await assert.rejects(handOver(join(root, "no-such-program"), []), /ENOENT/);
});
