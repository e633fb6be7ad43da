// A static server that sends what a strict host would: cross-origin isolation, without which a page
// gets no threads, and a policy under which nothing inline and no eval runs.
//   node scripts/serve.mjs [folder] [--port N]
import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { networkInterfaces } from "node:os";
import { extname, join, normalize, resolve } from "node:path";
import { pipeline } from "node:stream";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { commandLine, portOf } from "./command_line.mjs";
import { main } from "./steps.mjs";

const contentTypes = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".ico": "image/x-icon",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".map": "application/json",
  ".mjs": "text/javascript; charset=utf-8",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
  ".wasm": "application/wasm",
  ".webmanifest": "application/manifest+json",
  ".woff2": "font/woff2",
};

export const isolation = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

export const policy = {
  "Cross-Origin-Resource-Policy": "same-origin",
  "X-Content-Type-Options": "nosniff",
  "Cache-Control": "no-cache",
  "Content-Security-Policy": [
    "default-src 'self'",
    "script-src 'self' 'wasm-unsafe-eval'",
    "style-src 'self'",
    "worker-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data: blob:",
    "object-src 'none'",
    "base-uri 'none'",
  ].join("; "),
};

// What Vite names by its content: other content has another name.
const hashed = /\/assets\/[^/]+-[\w-]{8}\.\w+$/;

// The file that a request names inside `folder`, or null.
function locate(folder, request) {
  try {
    const { pathname } = new URL(request.url, "http://localhost");
    let file = join(folder, normalize(decodeURIComponent(pathname)));
    if (file !== folder && !file.startsWith(`${folder}/`)) return null;
    if (statSync(file).isDirectory()) {
      // Addresses on the page are relative to it: a folder has a slash at its end.
      if (!pathname.endsWith("/")) return { moved: `${pathname}/` };
      file = join(file, "index.html");
    }
    return { file, size: statSync(file).size };
  } catch {
    return null;
  }
}

function answer(folder, headers, request, response) {
  const found = ["GET", "HEAD"].includes(request.method) ? locate(folder, request) : null;
  if (!found) {
    response.writeHead(404, { ...headers, "Content-Type": contentTypes[".txt"] });
    response.end("not here\n");
    return;
  }
  if (found.moved) {
    const { search } = new URL(request.url, "http://localhost");
    response.writeHead(301, { ...headers, Location: found.moved + search });
    response.end();
    return;
  }
  const type = contentTypes[extname(found.file)] ?? "application/octet-stream";
  response.writeHead(200, {
    ...headers,
    "Content-Type": type,
    "Content-Length": found.size,
    ...(hashed.test(found.file) && { "Cache-Control": "max-age=31536000, immutable" }),
  });
  if (request.method === "HEAD") response.end();
  // A file may go away while it is sent: a rebuild empties the folder.
  else pipeline(createReadStream(found.file), response, () => {});
}

// This machine's addresses in its networks, for a phone beside it: which network that is in is not known.
function lanAddresses() {
  const addresses = Object.values(networkInterfaces()).flat();
  const own = addresses.filter(({ family, internal }) => family === "IPv4" && !internal);
  if (own.length === 0) throw new Error("--lan: this machine has no address in a network");
  return own.map(({ address }) => address);
}

// Resolves with { url, urls, close() } once it listens; port 0 takes any free one. Only this machine can
// ask, or with `lan` every machine in the networks of this one, which gets one thread: plain HTTP
// isolates no page. `sent` are headers in place of the policy. `urls` are all addresses, `url` is the first.
export function serve(folder, port = 0, { isolated = true, lan = false, sent = policy } = {}) {
  const base = resolve(folder);
  const hosts = lan ? lanAddresses() : ["localhost"];
  const headers = isolated && !lan ? { ...isolation, ...sent } : sent;
  const server = createServer((request, response) => answer(base, headers, request, response));
  return new Promise((resolvePromise, reject) => {
    server.once("error", reject);
    server.listen(port, lan ? "0.0.0.0" : "127.0.0.1", () => {
      const urls = hosts.map((host) => `http://${host}:${server.address().port}/`);
      const close = () => {
        server.closeAllConnections();
        server.close();
      };
      resolvePromise({ url: urls[0], urls, close });
    });
  });
}

// The port asked for, or the next free one after it.
export async function serveNear(folder, port, options) {
  for (let candidate = port; ; ++candidate) {
    try {
      return await serve(folder, candidate, options);
    } catch (error) {
      if (error.code !== "EADDRINUSE" || candidate >= port + 20) throw error;
    }
  }
}

function readOptions(args) {
  const options = { port: { type: "string", default: "4173" } };
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
  const [folder = "build/web", ...more] = positionals;
  if (more.length > 0) throw new Error(`one folder is served, and ${more.join(", ")} is more`);
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) {
    throw new Error(`there is no folder ${folder}`);
  }
  return { folder, port: portOf(values.port) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { folder, port } = await commandLine(import.meta.url, readOptions);
  await main(async () => console.log((await serve(folder, port)).url));
}
