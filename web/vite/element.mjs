// The custom element as one file with a name that stays: other pages load it by its address.
import { fileURLToPath } from "node:url";
import { build } from "vite";

/** One file speaks one language: English. */
const englishOnly = {
  name: "heed-english-only",
  resolveId: (id) => (id.startsWith("virtual:messages/") ? `\0${id}` : undefined),
  load: (id) =>
    id.startsWith("\0virtual:messages/") ? "export const messages = {}, tables = {};" : undefined,
};

const entry = fileURLToPath(new URL("../src/element/attention_map.ts", import.meta.url));

export function element() {
  let outDir = "";
  return {
    name: "heed-element",
    apply: "build",
    configResolved: (config) => {
      outDir = config.build.outDir;
    },
    async closeBundle() {
      await build({
        configFile: false,
        logLevel: "warn",
        publicDir: false,
        plugins: [englishOnly],
        build: {
          outDir,
          emptyOutDir: false,
          target: "es2022",
          rollupOptions: {
            input: entry,
            output: { entryFileNames: "attention-map.js", codeSplitting: false },
          },
        },
      });
    },
  };
}
