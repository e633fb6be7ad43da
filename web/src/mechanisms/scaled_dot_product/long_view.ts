// What the long map is made of, in one file that is fetched when it is asked for.

export { default as View } from "./LongView.svelte";
export { LongMap } from "./long_map.svelte.js";
