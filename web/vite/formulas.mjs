// LaTeX becomes MathML while the site is built, so that no formula code is shipped.
//   virtual:formulas  the formulas of the sentence, the worked examples and the crafted pages
//   virtual:symbols   the letters of parameters, by name
// The formula of a mechanism stands in the HTML of its page (vite/pages.mjs).
import katex from "katex";
import { camelCase, parameters } from "./registry.mjs";

const FORMULAS = {
  projections: "Q = XW_Q,\\quad K = XW_K,\\quad V = XW_V",
  scores: "S = \\frac{1}{T\\sqrt{d}}\\,QK^\\top",
  weights: "P_{ij} = \\frac{e^{S_{ij}}}{\\sum_{k} e^{S_{ik}}}",
  output: "O = PV",
  regression:
    "\\hat y(x) = \\frac{\\sum_j K\\left(\\frac{|x - x_j|}{\\sigma}\\right) y_j}" +
    "{\\sum_j K\\left(\\frac{|x - x_j|}{\\sigma}\\right)}",
};

/** The MathML of a LaTeX formula, without anything that a strict style policy would refuse. */
export function toMathml(latex, { displayMode = true } = {}) {
  // A parenthesis of fixed size that carries a script shrinks in browsers; a pair that fits does not.
  const fitting = latex.replace(/\\[bB]ig([lr])(?![a-z])/g, (_, side) =>
    side === "l" ? "\\left" : "\\right",
  );
  const html = katex.renderToString(fitting, {
    output: "mathml",
    displayMode,
    strict: "error",
  });
  const math = html.match(/<math[\s\S]*<\/math>/)?.[0];
  if (!math) throw new Error(`no MathML for ${latex}`);
  if (/\sstyle=/.test(math)) throw new Error(`MathML of ${latex} needs inline styles`);
  return math;
}

/** Its equations one after the other, so that a narrow page has them in lines. */
export const toMathmlParts = (latex) =>
  latex
    .split(/\s*\\quad\s*/)
    .map((part) => toMathml(part))
    .join("");

const asModule = (name, entries) => `export const ${name} = ${JSON.stringify(entries)};`;

const MODULES = {
  "virtual:formulas": () =>
    asModule(
      "formulas",
      Object.fromEntries(Object.entries(FORMULAS).map(([name, latex]) => [name, toMathml(latex)])),
    ),
  "virtual:symbols": () =>
    asModule(
      "symbols",
      Object.fromEntries(
        parameters
          .filter(({ symbol }) => symbol !== "")
          .map(({ name, symbol }) => [camelCase(name), toMathml(symbol, { displayMode: false })]),
      ),
    ),
};

export function formulas() {
  return {
    name: "heed-formulas",
    resolveId: (id) => (id in MODULES ? `\0${id}` : undefined),
    load: (id) => MODULES[id.replace(/^\0/, "")]?.(),
  };
}
