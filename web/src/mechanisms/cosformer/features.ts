import { VECTORS } from "../gated_linear/story.js";

/** Without negative numbers, which ReLU would take away. */
export const positive = VECTORS.map(Math.abs);
