// Emscripten's output lies beside the compiled TypeScript; it brings no types of its own.
declare module "*.mjs" {
  const factory: (moduleArguments: Record<string, unknown>) => Promise<unknown>;
  export default factory;
}

// A module as gzip in base64; scripts/build.mjs writes it.
declare module "*.bytes.js" {
  const packed: string;
  export default packed;
}
