// The static server isolates the page, sends the strict policy, and serves its own folder only.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { serve, serveNear } from "../../scripts/serve.mjs";

const outside = mkdtempSync(join(tmpdir(), "heed-serve-"));
const folder = join(outside, "site");
let server;

before(async () => {
  mkdirSync(folder);
  writeFileSync(join(outside, "secret.txt"), "secret");
  writeFileSync(join(folder, "index.html"), "<p>page</p>");
  writeFileSync(join(folder, "core.wasm"), "\0asm");
  mkdirSync(join(folder, "assets"));
  writeFileSync(join(folder, "assets/page.js"), "");
  writeFileSync(join(folder, "assets/page-BFBU6IuV.js"), "");
  server = await serve(folder);
});
after(() => {
  server.close();
  rmSync(outside, { recursive: true });
});

// A request line as it is: fetch would tidy the path up.
function raw(target) {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1");
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("end", () => resolve(text)).on("error", reject);
    socket.write(`GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
  });
}

test("IsolatesThePageUnderAStrictPolicy", async () => {
  const response = await fetch(server.url);
  assert.equal(await response.text(), "<p>page</p>");
  assert.equal(response.headers.get("cross-origin-opener-policy"), "same-origin");
  assert.equal(response.headers.get("cross-origin-embedder-policy"), "require-corp");
  const policy = response.headers.get("content-security-policy");
  assert.match(policy, /script-src 'self' 'wasm-unsafe-eval';/);
  assert.doesNotMatch(policy, /unsafe-inline|'unsafe-eval'/);
});

test("NamesTheTypeOfWasm", async () => {
  const response = await fetch(`${server.url}core.wasm`, { method: "HEAD" });
  assert.equal(response.headers.get("content-type"), "application/wasm");
});

test("OnlyWhatIsNamedByItsContentIsKept", async () => {
  const kept = async (path) => (await fetch(server.url + path)).headers.get("cache-control");
  assert.match(await kept("assets/page-BFBU6IuV.js"), /immutable/);
  for (const path of ["", "core.wasm", "assets/page.js", "absent"]) {
    assert.equal(await kept(path), "no-cache", path);
  }
});

test("StaysInsideItsFolderAndAlive", async () => {
  for (const target of ["/../secret.txt", "/%2e%2e/secret.txt", "//", "/%", "/absent"]) {
    assert.doesNotMatch(await raw(target), /secret$/, target);
  }
  assert.match(await raw("/absent"), /^HTTP\/1.1 404/);
  assert.equal((await fetch(server.url)).status, 200);
});

test("TakesTheNextPortWhenOneIsBusy", async () => {
  const busy = Number(new URL(server.url).port);
  const second = await serveNear(folder, busy);
  assert.ok(Number(new URL(second.url).port) > busy);
  second.close();
});

const isLan = ({ family, internal }) => family === "IPv4" && !internal;
const lans = Object.values(networkInterfaces()).flat().filter(isLan);
const [lan] = lans;

test("AnswersItsNetworkOnlyWhenAsked", { skip: !lan && "no network" }, async () => {
  await assert.rejects(fetch(`http://${lan.address}:${new URL(server.url).port}/`));
  const open = await serve(folder, 0, { lan: true });
  try {
    assert.deepEqual(
      open.urls.map((url) => new URL(url).hostname),
      lans.map(({ address }) => address),
    );
    for (const url of open.urls) assert.equal((await fetch(url)).status, 200);
  } finally {
    open.close();
  }
});
