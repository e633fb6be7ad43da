// Formulas as the site has them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { toMathml } from "../../web/vite/formulas.mjs";
import { mechanisms } from "../../web/vite/registry.mjs";

test("ParenthesesStayAPairUnderAScript", () => {
  const pair = toMathml("k \\bigl(v - S^\\top k\\bigr)^\\top");
  assert.match(pair, /<msup><mrow><mo fence="true">\(/);
  const formulas = mechanisms.map(({ formula }) => formula).filter(Boolean);
  assert.ok(formulas.some((formula) => formula.includes("\\bigr)^")));
  for (const formula of formulas) {
    for (const part of formula.split(/\s*\\quad\s*/)) {
      assert.doesNotMatch(toMathml(part), /<msup><mo fence/, formula);
    }
  }
});
