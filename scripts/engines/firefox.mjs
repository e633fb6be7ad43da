// Firefox as it is installed, driven over WebDriver BiDi (https://w3c.github.io/webdriver-bidi/).
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { which } from "../process.mjs";

export const findFirefox = () =>
  process.env.HEED_FIREFOX ?? which("firefox-esr") ?? which("firefox");

const START_MS = 60_000;
const preferences = {
  "app.update.disabledForTesting": true,
  "browser.shell.checkDefaultBrowser": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "toolkit.telemetry.server": "",
};

function makeProfile() {
  const folder = mkdtempSync(join(tmpdir(), "heed-firefox-"));
  const lines = Object.entries(preferences).map(
    ([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});`,
  );
  writeFileSync(join(folder, "user.js"), lines.join("\n"));
  return folder;
}

// The address that Firefox prints once it listens.
function socketOf(child) {
  return new Promise((resolve, reject) => {
    let said = "";
    const timer = setTimeout(() => reject(new Error(`Firefox does not listen: ${said}`)), START_MS);
    child.stderr.on("data", (chunk) => {
      said += chunk;
      const address = /WebDriver BiDi listening on (ws:\S+)/.exec(said)?.[1];
      if (!address) return;
      clearTimeout(timer);
      resolve(`${address}/session`);
    });
    child.on("exit", () => reject(new Error(`Firefox ended: ${said}`)));
  });
}

class Connection {
  #socket;
  #last = 0;
  #waiting = new Map();

  // `onEvent` gets the parameters of every event that is subscribed to.
  static async to(address, onEvent) {
    const made = new Connection();
    const socket = new WebSocket(address);
    made.#socket = socket;
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = () => reject(new Error(`no connection to ${address}`));
    });
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.type === "event") onEvent(message.params);
      else made.#settle(message);
    };
    return made;
  }

  #settle(message) {
    const { resolve, reject } = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.type === "success") resolve(message.result);
    else reject(new Error(`${message.error}: ${message.message}`));
  }

  send(method, params) {
    this.#last += 1;
    this.#socket.send(JSON.stringify({ id: this.#last, method, params }));
    const id = this.#last;
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }
}

// What the browser itself says: uncaught errors, its console, the policy.
const complaintOf = ({ level, text, stackTrace }) =>
  ["error", "warn"].includes(level)
    ? `${level}: ${text} ${stackTrace?.callFrames[0]?.url ?? ""}`
    : null;

export async function startFirefox(program) {
  const profile = makeProfile();
  const flags = ["--headless", "--no-remote", "--remote-debugging-port=0", "--profile", profile];
  const child = spawn(program, flags, { stdio: ["ignore", "ignore", "pipe"] });
  const complaints = [];
  const note = (entry) => {
    const complaint = complaintOf(entry);
    if (complaint) complaints.push(complaint);
  };
  const link = await Connection.to(await socketOf(child), note);
  const { capabilities } = await link.send("session.new", { capabilities: {} });
  await link.send("session.subscribe", { events: ["log.entryAdded"] });
  const { contexts } = await link.send("browsingContext.getTree", {});
  const { context } = contexts[0];
  return {
    name: "Firefox",
    version: capabilities.browserVersion,
    complaints,
    async open(url, { width, height }) {
      await link.send("browsingContext.setViewport", { context, viewport: { width, height } });
      await link.send("browsingContext.navigate", { context, url, wait: "complete" });
    },
    async evaluate(work, ...args) {
      const call = `JSON.stringify(await (${work})(...${JSON.stringify(args)}))`;
      const { result, exceptionDetails } = await link.send("script.evaluate", {
        expression: `(async () => ${call})()`,
        target: { context },
        awaitPromise: true,
      });
      if (exceptionDetails) throw new Error(exceptionDetails.text);
      return result.value === undefined ? undefined : JSON.parse(result.value);
    },
    async screenshot() {
      const { data } = await link.send("browsingContext.captureScreenshot", { context });
      return Buffer.from(data, "base64");
    },
    async close() {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      await link.send("browser.close", {});
      await ended;
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
