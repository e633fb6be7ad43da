// Emscripten's JavaScript, made small, for bundlers of any kind.
import { readFileSync, writeFileSync } from "node:fs";

const isFunction = ({ type }) => /^(Arrow)?Function(Declaration|Expression)?/.test(type);

// Calls visit(declaration) for each function that is declared inside a block of another.
function eachInnerFunction(node, visit, inBlock = false) {
  if (node === null || typeof node !== "object") return;
  if (Array.isArray(node)) {
    for (const part of node) eachInnerFunction(part, visit, inBlock);
    return;
  }
  if (inBlock && node.type === "FunctionDeclaration") visit(node);
  for (const [name, part] of Object.entries(node)) {
    const body = isFunction(node) && name === "body" ? part?.body : part;
    eachInnerFunction(body, visit, node.type === "BlockStatement");
  }
}

// Functions declared in blocks become variables of the function around them. Strict code keeps them
// to their block, so a minifier may give them the name of another variable; a bundler that makes a
// classic script of the module (Vite does so of workers) then lets them replace it.
export function withoutBlockFunctions(source, parse) {
  const edits = [];
  eachInnerFunction(parse(source).body, ({ id, start, end }) => {
    edits.push([start, id.end, `var ${id.name}=function`], [end, end, ";"]);
  });
  edits.sort(([a], [b]) => b - a);
  return edits.reduce(
    (text, [start, end, put]) => text.slice(0, start) + put + text.slice(end),
    source,
  );
}

// Emscripten's glue keeps its long names; a third of its download goes without them.
export async function minifyGlue(from, to) {
  const { minify, parseAst } = await import("vite");
  const source = withoutBlockFunctions(readFileSync(from, "utf8"), parseAst);
  const { code, errors } = await minify(from, source, { module: true });
  if (errors.length > 0) throw new Error(`${from}: ${errors[0].message}`);
  writeFileSync(to, code);
}
