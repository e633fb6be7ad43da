// Styles first: what draws reads its colours from them as soon as it is imported.
import "./styles/index.css";
import { start } from "./lib/start.js";
import ModelPage from "./model_page/ModelPage.svelte";

start(ModelPage);
