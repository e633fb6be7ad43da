// What npm run test:engines calls wrong.
import assert from "node:assert/strict";
import { test } from "node:test";
import { faultsOf, readScientific } from "../../scripts/engines/site.mjs";

const seen = {
  isolated: true,
  canvases: 1,
  blank: [],
  drawings: 0,
  agreements: ["8.9 × 10⁻⁸", "0"],
  alerts: [],
  across: 0,
  complaints: [],
};

test("ReadsNumbersAsPagesWriteThem", () => {
  assert.equal(readScientific("8.9 × 10⁻⁸"), 8.9e-8);
  assert.equal(readScientific("1.2 × 10³"), 1200);
  assert.equal(readScientific("0"), 0);
  assert.ok(Number.isNaN(readScientific("…")));
});

test("EveryFaultOfAPageIsNamed", () => {
  assert.deepEqual(faultsOf("index.html", seen, true), []);
  const faults = {
    isolated: false,
    canvases: 0,
    blank: ["map"],
    agreements: ["2 × 10⁻²"],
    alerts: ["not loaded"],
    across: 3,
    complaints: ["policy: style-src"],
  };
  for (const [name, value] of Object.entries(faults)) {
    assert.equal(faultsOf("index.html", { ...seen, [name]: value }, true).length, 1, name);
  }
  assert.equal(faultsOf("index.html", seen, false).length, 1);
  assert.deepEqual(faultsOf("race.html", { ...seen, canvases: 0 }, true), []);
});
