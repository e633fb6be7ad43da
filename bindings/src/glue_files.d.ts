// Emscripten's output lies beside the compiled TypeScript; it brings no types of its own.
declare module "*.mjs" {
  const factory: (moduleArguments: Record<string, unknown>) => Promise<unknown>;
  export default factory;
}
