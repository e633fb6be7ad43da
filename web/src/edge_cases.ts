// Styles first: what draws reads its colours from them as soon as it is imported.
import "./styles/index.css";
import EdgeCases from "./edge_cases/EdgeCases.svelte";
import { start } from "./lib/start.js";

start(EdgeCases);
