// What a visitor does, in one engine: saves files, races, trains. Each resolves with what went wrong, or null.
import { until } from "./site.mjs";

const WIDE = { width: 1280, height: 860 };

/** Presses the first button with this text; whether there is one that can be pressed. */
function press(text) {
  const buttons = [...document.querySelectorAll("#app button")];
  const button = buttons.find((one) => one.textContent.trim() === text && !one.disabled);
  button?.click();
  return button !== undefined;
}

/** Files are kept instead of saved. The policy allows no request of a blob's address: it is seen when made. */
function keepFiles() {
  window.heedFiles = [];
  const blobs = new Map();
  const make = URL.createObjectURL;
  URL.createObjectURL = (blob) => {
    const url = make(blob);
    blobs.set(url, blob);
    return url;
  };
  HTMLAnchorElement.prototype.click = async function keep() {
    const bytes = new Uint8Array(await blobs.get(this.href).arrayBuffer());
    const start = String.fromCharCode(...bytes.subarray(0, 400));
    window.heedFiles.push({ size: bytes.length, start });
  };
}

const beginnings = {
  PNG: /^\x89PNG\r\n/,
  SVG: /^(<\?xml[^>]*>\s*)?<svg /,
  CSV: /,.*\r\n/,
  JSON: /^\{\s*"/,
};

async function savesFiles(engine, address) {
  await engine.open(`${address}site/index.html#v=1&text=salt+and+pepper`, WIDE);
  const computed = () =>
    /output \d/.test(document.querySelector("[data-testid=caption]")?.textContent);
  if (!(await until(engine, computed))) return "it does not compute";
  await engine.evaluate(keepFiles);
  for (const [count, kind] of Object.keys(beginnings).entries()) {
    if (!(await engine.evaluate(press, kind))) return `no button ${kind}`;
    const kept = (least) => window.heedFiles.length > least;
    if (!(await until(engine, kept, count))) return `no file ${kind}`;
  }
  const files = await engine.evaluate(() => window.heedFiles);
  const wrong = Object.entries(beginnings).find(
    ([, pattern], n) => files[n].size < 100 || !pattern.test(files[n].start),
  );
  return wrong ? `${wrong[0]} begins with ${files.map(({ start }) => start.slice(0, 20))}` : null;
}

async function races(engine, address) {
  await engine.open(`${address}site/race.html`, WIDE);
  if (!(await until(engine, press, "Start the race"))) return "no button that starts it";
  const ended = () =>
    document.querySelector("[data-testid=race]")?.getAttribute("aria-busy") === "false" &&
    document.querySelector("[data-testid=race] canvas") !== null;
  if (!(await until(engine, ended))) return "it does not end";
  return engine.evaluate(() => document.querySelector("#app [role=alert]")?.textContent ?? null);
}

async function trains(engine, address) {
  await engine.open(`${address}site/training.html#task=regression`, WIDE);
  if (!(await until(engine, press, "Train"))) return "no button Train that can be pressed";
  const stepped = () => Number(document.querySelector("[data-testid=training]").dataset.step) >= 5;
  return (await until(engine, stepped)) ? null : "it makes no steps";
}

async function speaksGerman(engine, address) {
  await engine.open(`${address}site/de/mechanisms/sink.html`, WIDE);
  const said = () =>
    /^[\d,]+\s×\s10/.test(document.querySelector("[data-testid=agreement]")?.textContent);
  return (await until(engine, said)) ? null : "no difference with a German comma";
}

export const acts = {
  "figures as PNG, SVG, CSV and JSON": savesFiles,
  "a race": races,
  "five steps of training": trains,
  "a page in German": speaksGerman,
};
