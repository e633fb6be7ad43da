// The package and the custom element in one engine: what pages of an application do with them.
import { until } from "./site.mjs";

const WIDE = { width: 1280, height: 860 };

function describe(name, result) {
  const { variant, threads, reasons, compared, worst, absent, error } = result;
  const words = [
    variant && `${variant}, ${threads ?? 1} threads`,
    reasons && `(${Object.values(reasons).join("; ")})`,
    compared && `${compared} mechanisms within ${worst.difference.toExponential(1)} (${worst.id})`,
    absent && `absent: ${absent}`,
    error,
  ].filter(Boolean);
  return words.length > 0 ? `${name}: ${words.join(" ")}` : name;
}

/** Runs the package's checks: what is right, and what is wrong, a line each. */
export async function checkPackage(engine, address) {
  await engine.open(`${address}check/package.html`, WIDE);
  await until(engine, () => window.heedChecks !== undefined);
  const results = await engine.evaluate(() => window.heedChecks);
  const rows = Object.entries(results);
  const complaints = await engine.evaluate(() => window.heedComplaints);
  const isBad = ([, { error, isRight }]) => error !== undefined || isRight === false;
  const words = (some) => some.map(([name, result]) => describe(name, result));
  const faults = [...words(rows.filter(isBad)), ...complaints];
  return { lines: words(rows.filter((row) => !isBad(row))), faults };
}

/** The element in a page of another site, and the site in a frame. */
export async function checkElement(engine, address) {
  await engine.open(`${address}check/element.html`, WIDE);
  const isThere = await until(engine, () => {
    const inside = document.querySelector("iframe").contentDocument;
    const canvas = document.querySelector("attention-map").shadowRoot?.querySelector("canvas, svg");
    return canvas && /output \d/.test(inside?.querySelector("[data-testid=caption]")?.textContent);
  });
  const complaints = await engine.evaluate(() => window.heedComplaints);
  return [!isThere && "no picture in the element or its frame", ...complaints].filter(Boolean);
}
