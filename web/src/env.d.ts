/// <reference types="svelte" />
/// <reference types="vite/client" />

declare module "virtual:formulas" {
  /** MathML by name. */
  export const formulas: Readonly<Record<string, string>>;
}
