import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";
import { isolation, policy } from "../scripts/serve.mjs";
import { element } from "./vite/element.mjs";
import { formulas } from "./vite/formulas.mjs";
import { messages } from "./vite/messages.mjs";
import { pages } from "./vite/pages.mjs";
import { registry } from "./vite/registry.mjs";
import { PAGE_FILES } from "./vite/shell.mjs";
import { englishOnly, translations } from "./vite/translations.mjs";

const inRoot = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url));

// Threads and the finest clock need a cross-origin isolated page, and nothing inline may run: what
// scripts/serve.mjs sends, the servers of Vite send too.
const headers = { ...isolation, ...policy };

/** The development server adds its own client and styles to pages: they carry a number that is known here alone. */
function headersWith(nonce: string) {
  const added = {
    "script-src": `'nonce-${nonce}'`,
    "style-src": `'nonce-${nonce}'`,
    "connect-src": "ws:",
  };
  const rules = policy["Content-Security-Policy"].split("; ").map((rule) => {
    const more = Object.entries(added).find(([name]) => rule.startsWith(name))?.[1];
    return more ? `${rule} ${more}` : rule;
  });
  return { ...headers, "Content-Security-Policy": rules.join("; ") };
}

const nonce = randomUUID();

export default defineConfig(({ command, isPreview }) => ({
  root: inRoot("web"),
  // Relative addresses: the site works from any folder of any host.
  base: "./",
  plugins: [
    svelte({ preprocess: messages() }),
    formulas(),
    registry(),
    translations(),
    pages(),
    element(),
  ],
  resolve: {
    alias: { "heed/training": inRoot("dist/training.js"), heed: inRoot("dist/index.js") },
  },
  build: {
    outDir: inRoot("build/web"),
    emptyOutDir: true,
    target: "es2022",
    // Data addresses are refused by `connect-src 'self'`; every asset stays a file.
    assetsInlineLimit: 0,
    // 7 kB for the whole site: one file comes before the first paint of any page.
    cssCodeSplit: false,
    rollupOptions: {
      input: [...PAGE_FILES, "mechanisms/mechanism"].map((page) => inRoot(`web/${page}.html`)),
    },
  },
  // Workers load WebAssembly with import(), which only modules have. They speak English.
  worker: { format: "es", plugins: () => [registry(), englishOnly()] },
  html: command === "serve" && !isPreview ? { cspNonce: nonce } : {},
  server: { headers: headersWith(nonce) },
  preview: { headers },
}));
