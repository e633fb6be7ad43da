// What holds for every page of the site, in every engine. The functions run in the page: they are sent as text.

const WAIT_MS = 90_000;
const EVERY_MS = 300;

/** Edge cases are tables, and a race has to be started. */
const hasPictures = (path) => !["edge_cases.html", "race.html"].includes(path);

/** Whether the page has computed what it shows. */
function isSettled(path, withPicture) {
  const loading = /^(Loading heed …|heed wird geladen …)$/;
  const busy = [...document.querySelectorAll("#app *")].some(
    (node) => node.children.length === 0 && loading.test(node.textContent.trim()),
  );
  const open = /\u2026\.$|(reference|Referenz)[^.]*…/;
  const waits = [...document.querySelectorAll("[data-testid=agreement], [data-testid=caption]")];
  return (
    // Not the page before, which may answer until this one is there.
    location.pathname.endsWith(`/site/${path}`) &&
    document.readyState === "complete" &&
    document.querySelector("h1") !== null &&
    document.querySelector("#app > *") !== null &&
    (!withPicture || document.querySelector("#app canvas, #app svg") !== null) &&
    document.querySelector("[aria-busy=true]") === null &&
    !busy &&
    !waits.some((node) => open.test(node.textContent) || node.textContent === "…")
  );
}

/** What a page shows: its pictures, what it says of its numbers, its width, and what went wrong. */
function look() {
  // The pixels of a copy, so that the picture itself stays where the engine has it.
  const isPainted = (canvas) => {
    if (canvas.width === 0 || canvas.height === 0) return false;
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext("2d");
    context.drawImage(canvas, 0, 0);
    const pixels = new Uint32Array(
      context.getImageData(0, 0, canvas.width, canvas.height).data.buffer,
    );
    return pixels.some((pixel) => pixel !== pixels[0]);
  };
  const shown = (selector) =>
    [...document.querySelectorAll(selector)].filter((node) => {
      const { width, height } = node.getBoundingClientRect();
      return width > 0 && height > 0 && node.checkVisibility();
    });
  const canvases = shown("canvas");
  // Marks are drawn on a canvas of their own above the picture, which is empty until there are some.
  const isBlank = (canvas) =>
    ![...canvas.parentElement.querySelectorAll(":scope > canvas")].some(isPainted);
  const agreements = [...document.querySelectorAll("[data-testid=agreement]")];
  return {
    isolated: crossOriginIsolated,
    canvases: canvases.length,
    blank: canvases.filter(isBlank).map((canvas) => canvas.className),
    drawings: shown("#app svg").length,
    agreements: agreements.map((node) => node.textContent.trim()),
    caption: document.querySelector("[data-testid=caption]")?.textContent.trim() ?? null,
    alerts: shown("[role=alert]").map((node) => node.textContent.trim()),
    across: document.documentElement.scrollWidth - innerWidth,
    complaints: window.heedComplaints ?? ["the page has no notes"],
  };
}

/** Waits until `test`, a function of the page and `args`, holds; whether it came to that. */
export async function until(engine, test, ...args) {
  for (const end = Date.now() + WAIT_MS; Date.now() < end; ) {
    if (await engine.evaluate(test, ...args)) return true;
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  return false;
}

const MOST_DIFFERENCE = 1e-5;

/** "6.4 × 10⁻⁷" or "0" as a number. */
export function readScientific(text) {
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const plain = text
    .replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (digit) => String(digits.indexOf(digit)))
    .replace("⁻", "-")
    .replace(/\s*×\s*10/, "e");
  return plain === "" ? NaN : Number(plain);
}

/** What is wrong with a page that was looked at. */
export function faultsOf(path, seen, settled) {
  const far = seen.agreements.filter((text) => !(readScientific(text) <= MOST_DIFFERENCE));
  return [
    !settled && "it does not settle",
    !seen.isolated && "it is not cross-origin isolated",
    hasPictures(path) && seen.canvases + seen.drawings === 0 && "it has no picture",
    seen.blank.length > 0 && `${seen.blank.length} pictures are blank: ${seen.blank.join(", ")}`,
    seen.across > 0 && `it scrolls sideways by ${seen.across}`,
    far.length > 0 && `it is far from the reference: ${far.join(", ")}`,
    ...seen.alerts.map((text) => `it says: ${text}`),
    ...seen.complaints,
  ].filter(Boolean);
}

/** Opens one page in one size, and looks. */
export async function visit(engine, address, path, size) {
  const before = engine.complaints.length;
  await engine.open(`${address}site/${path}`, size);
  const settled = await until(engine, isSettled, path, hasPictures(path));
  const seen = await engine.evaluate(look);
  seen.complaints.push(...engine.complaints.slice(before));
  return { seen, faults: faultsOf(path, seen, settled) };
}
