// One mechanism's page. Its figure is a file of its own that arrives together with this one: its address
// stands in the HTML.
// Styles first: what draws reads its colours from them as soon as it is imported.
import "./styles/index.css";
import { type Component, mount } from "svelte";
import { connectHeader, nameFrame } from "./lib/site.js";
import MechanismPage from "./mechanism/MechanismPage.svelte";

const figures = import.meta.glob<{ default: Component }>("./mechanisms/*/Page.svelte");

const target = document.getElementById("app");
const id = target?.dataset.mechanism;
if (!target || !id) throw new Error("the page does not say which mechanism it shows");
connectHeader();
const page = figures[`./mechanisms/${id}/Page.svelte`];
if (!page) throw new Error(`${id} has no figure`);
nameFrame();
mount(MechanismPage, { target, props: { id, Crafted: (await page()).default } });
