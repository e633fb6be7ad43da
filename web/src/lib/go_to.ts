// Moves to a part of the page. The fragment holds the state, so anchors cannot do it.

/** Scrolls to the element and puts the keyboard there. */
export function goTo(id: string): void {
  const target = document.getElementById(id);
  if (!target) return;
  // Only what a visitor asked for glides. Were the page's own `scroll-behavior` smooth, every focus
  // that brings a control into view would, and a click could land where the control had been.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  target.scrollIntoView({ behavior: still ? "auto" : "smooth" });
  if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
  target.focus({ preventScroll: true });
}
