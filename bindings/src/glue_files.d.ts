// Emscripten's output lies beside the compiled TypeScript; it brings no types of its own.
declare module "*.mjs" {
  const factory: (moduleArguments: Record<string, unknown>) => Promise<unknown>;
  export default factory;
}

// Which build the files beside it are of; scripts/build_id.mjs writes it.
declare module "*/build_id.js" {
  export const BUILD_ID: string;
}

// A module as gzip in base64; scripts/build.mjs writes it.
declare module "*.bytes.js" {
  const packed: string;
  export default packed;
}
