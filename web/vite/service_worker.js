// Keeps the site for offline use. VERSION and FILES are written in front of this by vite/pages.mjs.
// Pages come from the network while there is one, files with a hash in their name from the cache.
const PREFIX = `heed ${self.registration.scope} `;
const CACHE = PREFIX + VERSION;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});

async function dropOldVersions() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith(PREFIX) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
}

self.addEventListener("activate", (event) => {
  event.waitUntil(dropOldVersions());
});

async function keep(request, response) {
  if (response.ok) await (await caches.open(CACHE)).put(request, response.clone());
  return response;
}

const fromCache = (request) => caches.match(request, { cacheName: CACHE, ignoreSearch: true });

async function cacheFirst(request) {
  return (await fromCache(request)) ?? keep(request, await fetch(request));
}

async function networkFirst(request) {
  try {
    return await keep(request, await fetch(request));
  } catch (error) {
    const folder = request.url.endsWith("/") ? new Request(`${request.url}index.html`) : request;
    const kept = (await fromCache(request)) ?? (await fromCache(folder));
    if (kept) return kept;
    throw error;
  }
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(self.registration.scope)) return;
  const hashed = new URL(request.url).pathname.includes("/assets/");
  event.respondWith(hashed ? cacheFirst(request) : networkFirst(request));
});

// What the page had loaded before this worker was there: the WebAssembly it uses.
async function keepLoaded(addresses) {
  const cache = await caches.open(CACHE);
  for (const address of addresses) {
    if (!address.startsWith(self.registration.scope)) continue;
    if (!(await cache.match(address))) await cache.add(address);
  }
}

self.addEventListener("message", (event) => {
  if (!Array.isArray(event.data?.loaded)) return;
  const done = keepLoaded(event.data.loaded).then(() => event.ports[0]?.postMessage("kept"));
  event.waitUntil(done);
});
