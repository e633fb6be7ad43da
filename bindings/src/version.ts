/** The version of this package; the WebAssembly files must say the same. */
export const VERSION = "0.1.0";
