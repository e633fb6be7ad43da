// Styles first: what draws reads its colours from them as soon as it is imported.
import "./styles/colour.css";
import "./styles/base.css";
import "./styles/site.css";
import { mount } from "svelte";
import Home from "./Home.svelte";
import { connectHeader } from "./lib/site.js";

const target = document.getElementById("app");
if (!target) throw new Error("index.html has no #app");
connectHeader();
mount(Home, { target });
