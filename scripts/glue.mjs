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

function replaceOnce(source, pattern, text, what) {
  const count = [...source.matchAll(new RegExp(pattern, "g"))].length;
  if (count !== 1)
    throw new Error(`${what}: found ${count} times in Emscripten's glue, expected 1`);
  return source.replace(pattern, text);
}

// Bundlers find a worker's file by reading `new Worker(new URL(...))`. In the glue that line names the
// file it stands in, and a worker that may start itself holds Turbopack's builds for ever
// (vercel/next.js#97399). So the package says the line (bindings/src/full_files.ts), outside of what it
// starts, and glue calls it.
export function withGivenThreads(source) {
  const start = /new Worker\(new URL\("[\w.-]+\.mjs",\s*import\.meta\.url\),\s*[^()]+\)/;
  return replaceOnce(source, start, 'Module["newThread"]()', "the line that starts a worker");
}

// A worker that cannot start says so by an event, which the glue throws where nobody can catch it.
// bindings/src/open.ts is asked first.
export function withCaughtFailures(source) {
  return replaceOnce(
    source,
    /throw e(?=\};(?:if\(ENVIRONMENT_IS_NODE\)\{worker\.on|var handlers=))/,
    'if(!Module["threadFailed"]?.(e))throw e',
    "the line that throws what a worker failed of",
  );
}

// Node's glue names a file of its own, which is the web's and is not kept twice. Nobody reads it, but
// bundlers for servers want it to be there.
export function withSharedFile(source) {
  return replaceOnce(
    source,
    /new URL\("([\w-]+)\.node\.wasm",\s*import\.meta\.url\)/,
    'new URL("$1.wasm",import.meta.url)',
    "the address of its WebAssembly",
  );
}

function prepare(source, name) {
  if (!/-threads(\.node)?\.mjs$/.test(name)) return source;
  const threaded = withCaughtFailures(withGivenThreads(source));
  return name.endsWith(".node.mjs") ? withSharedFile(threaded) : threaded;
}

// Emscripten's glue keeps its long names; a third of its download goes without them.
export async function minifyGlue(from, to) {
  const { minify, parseAst } = await import("vite");
  const prepared = prepare(readFileSync(from, "utf8"), from);
  const source = withoutBlockFunctions(prepared, parseAst);
  const { code, errors } = await minify(from, source, { module: true });
  if (errors.length > 0) throw new Error(`${from}: ${errors[0].message}`);
  writeFileSync(to, code);
}
