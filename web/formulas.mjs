// A Vite plugin: LaTeX becomes MathML while the page is built, so that no formula code is shipped.
// `virtual:formulas` maps a name to MathML: the page's own formulas, and those of every mechanism
// of the list as "mechanism:<id>", and the letters of parameters as "parameter:<name>".
import { pathToFileURL } from "node:url";
import katex from "katex";

const PAGE_FORMULAS = {
  projections: "Q = XW_Q,\\quad K = XW_K,\\quad V = XW_V",
  scores: "S = \\frac{1}{T\\sqrt{d}}\\,QK^\\top",
  weights: "P_{ij} = \\frac{e^{S_{ij}}}{\\sum_{k} e^{S_{ik}}}",
  output: "O = PV",
  regression:
    "\\hat y(x) = \\frac{\\sum_j K\\left(\\frac{|x - x_j|}{\\sigma}\\right) y_j}" +
    "{\\sum_j K\\left(\\frac{|x - x_j|}{\\sigma}\\right)}",
};

const MODULE = "virtual:formulas";

/** The MathML of a LaTeX formula, without anything that a strict style policy would refuse. */
export function toMathml(latex, { displayMode = true } = {}) {
  const html = katex.renderToString(latex, {
    output: "mathml",
    displayMode,
    strict: "error",
  });
  const math = html.match(/<math[\s\S]*<\/math>/)?.[0];
  if (!math) throw new Error(`no MathML for ${latex}`);
  if (/\sstyle=/.test(math)) throw new Error(`MathML of ${latex} needs inline styles`);
  return math;
}

/** @param {string} packageEntry path of heed's Node entry, whose list of mechanisms is read. */
export function formulas(packageEntry) {
  return {
    name: "heed-formulas",
    resolveId: (id) => (id === MODULE ? `\0${MODULE}` : undefined),
    async load(id) {
      if (id !== `\0${MODULE}`) return undefined;
      const { load } = await import(pathToFileURL(packageEntry).href);
      const { mechanisms, parameters } = await load({ threads: 1 });
      const letters = parameters
        .filter(({ symbol }) => symbol !== "")
        .map(({ name, symbol }) => [`parameter:${name}`, toMathml(symbol, { displayMode: false })]);
      const latex = {
        ...PAGE_FORMULAS,
        ...Object.fromEntries(mechanisms.map((row) => [`mechanism:${row.id}`, row.formula])),
      };
      const rendered = Object.entries(latex).map(([name, source]) => [name, toMathml(source)]);
      return `export const formulas = ${JSON.stringify(Object.fromEntries([...rendered, ...letters]))};`;
    },
  };
}
