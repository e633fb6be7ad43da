// `heed/gradients` for pages without a bundler: scripts/bundle.mjs makes one file of it.
export * from "./gradients.js";
