// Moves to a part of the page. The fragment holds the state, so anchors cannot do it.

/** Scrolls to the element and puts the keyboard there. */
export function goTo(id: string): void {
  const target = document.getElementById(id);
  if (!target) return;
  target.scrollIntoView();
  target.focus({ preventScroll: true });
}
