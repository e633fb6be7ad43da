// Styles first: what draws reads its colours from them as soon as it is imported.
import "./styles/index.css";
import Home from "./Home.svelte";
import { start } from "./lib/start.js";

start(Home);
