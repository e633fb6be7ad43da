// What every page but a mechanism's own does first: its component takes the place that its HTML keeps.
import { type Component, mount } from "svelte";
import { connectHeader, nameFrame } from "./site.js";

export function start(page: Component): void {
  const target = document.getElementById("app");
  if (!target) throw new Error("the page has no #app");
  connectHeader();
  mount(page, { target });
  nameFrame();
}
