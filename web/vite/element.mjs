// The custom element as one file with a name that stays: other pages load it by its address. One file speaks
// one language: English.
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { englishOnly } from "./translations.mjs";

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
        plugins: [englishOnly()],
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
