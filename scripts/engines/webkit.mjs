// WebKit as GTK's MiniBrowser has it, driven by WebKitWebDriver (https://www.w3.org/TR/webdriver2/), on a
// display of its own where there is none.
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { which } from "../process.mjs";

export function findWebKit() {
  const program = process.env.HEED_WEBKIT_DRIVER ?? which("WebKitWebDriver");
  return process.env.DISPLAY || which("Xvfb") ? program : null;
}

const SCRIPT_MS = 300_000;
/** MiniBrowser's window is not narrower: a narrower page is shown in a frame. */
const LEAST_WIDTH = 500;

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

async function startDisplay() {
  const args = ["-displayfd", "3", "-screen", "0", "1400x1000x24", "-nolisten", "tcp"];
  const child = spawn("Xvfb", args, { stdio: ["ignore", "ignore", "ignore", "pipe"] });
  const number = await new Promise((resolve, reject) => {
    child.stdio[3].once("data", (chunk) => resolve(String(chunk).trim()));
    child.once("exit", () => reject(new Error("Xvfb ended")));
  });
  return { display: `:${number}`, close: () => child.kill() };
}

async function untilReady(base) {
  for (let attempt = 0; attempt < 100; ++attempt) {
    const answer = await fetch(`${base}/status`).catch(() => null);
    if (answer?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error("WebKitWebDriver does not listen");
}

async function request(method, url, body) {
  const answer = await fetch(url, { method, body: body && JSON.stringify(body) });
  const { value } = await answer.json();
  if (value?.error) throw new Error(`${value.error}: ${value.message}`);
  return value;
}

// Its errors as text: what a script throws would come without its message.
const asynchronous = (work) => `
  const done = arguments[arguments.length - 1];
  Promise.resolve((${work})(...arguments[0])).then(
    (value) => done({ value: JSON.stringify(value) }),
    (error) => done({ error: String(error) }),
  );`;

export async function startWebKit(program) {
  const screen = process.env.DISPLAY ? null : await startDisplay();
  const port = await freePort();
  const env = { ...process.env, DISPLAY: screen?.display ?? process.env.DISPLAY };
  const driver = spawn(program, [`--port=${port}`], { stdio: "ignore", env });
  const base = `http://127.0.0.1:${port}`;
  await untilReady(base);
  const { sessionId, capabilities } = await request("POST", `${base}/session`, {
    capabilities: { alwaysMatch: { timeouts: { script: SCRIPT_MS } } },
  });
  const ask = (method, path, body) => request(method, `${base}/session/${sessionId}/${path}`, body);
  let frame = null;

  async function enterFrame(url, { width, height }) {
    const { origin } = new URL(url);
    const query = new URLSearchParams({ url, width, height });
    await ask("POST", "url", { url: `${origin}/frame.html?${query}` });
    frame = await ask("POST", "element", { using: "css selector", value: "iframe[src]" });
    await ask("POST", "frame", { id: frame });
  }
  return {
    name: "WebKitGTK",
    version: capabilities.browserVersion,
    complaints: [],
    async open(url, size) {
      await ask("POST", "frame", { id: null });
      frame = null;
      const width = Math.max(size.width, LEAST_WIDTH);
      await ask("POST", "window/rect", { width, height: size.height + 60 });
      if (size.width < LEAST_WIDTH) await enterFrame(url, size);
      else await ask("POST", "url", { url });
    },
    async evaluate(work, ...args) {
      const script = asynchronous(work);
      const { value, error } = await ask("POST", "execute/async", { script, args: [args] });
      if (error) throw new Error(error);
      return value === undefined || value === null ? undefined : JSON.parse(value);
    },
    async screenshot() {
      if (!frame) return Buffer.from(await ask("GET", "screenshot"), "base64");
      await ask("POST", "frame", { id: null });
      const [id] = Object.values(frame);
      const picture = await ask("GET", `element/${id}/screenshot`);
      await ask("POST", "frame", { id: frame });
      return Buffer.from(picture, "base64");
    },
    async close() {
      await request("DELETE", `${base}/session/${sessionId}`);
      driver.kill();
      screen?.close();
    },
  };
}
