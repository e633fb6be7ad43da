// Styles first: what draws reads its colours from them as soon as it is imported.
import "./styles/index.css";
import Gallery from "./gallery/Gallery.svelte";
import { start } from "./lib/start.js";

start(Gallery);
