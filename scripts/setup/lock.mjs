// One set-up at a time per cache folder: clones share it, and two of them may start together.
// The lock is a listening socket, so it ends with its holder however that one dies; a file with a
// process id in it would outlive a crash and could name a stranger after a restart.
import { createHash } from "node:crypto";
import { rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

// Socket paths are limited to about a hundred bytes, so the folder's name goes in as a hash.
function socketPath(folder) {
  const name = `heed-${createHash("sha256").update(folder).digest("hex").slice(0, 16)}`;
  return process.platform === "win32" ? `\\\\.\\pipe\\${name}` : join(tmpdir(), `${name}.lock`);
}

function listen(path) {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.end()).unref();
    server.once("error", (error) => (error.code === "EADDRINUSE" ? resolve(null) : reject(error)));
    server.listen(path, () => resolve(server));
  });
}

function hasHolder(path) {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("close", () => socket.destroy());
  });
}

export async function withLock(folder, work) {
  const path = socketPath(folder);
  let server = await listen(path);
  for (let announced = false; !server; server = await listen(path)) {
    if (!(await hasHolder(path))) {
      rmSync(path, { force: true });
      continue;
    }
    if (!announced) console.log("setup: another set-up is running; waiting for it");
    announced = true;
    await sleep(500);
  }
  try {
    return await work();
  } finally {
    server.close();
  }
}
