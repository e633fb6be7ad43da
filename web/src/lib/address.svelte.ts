// The state of a page in its address: the fragment of the current entry of the history, so that back leaves
// the page.
const DELAY_MS = 250;

/** `fragment` is with "#", or "" for a page as it begins. */
export function writeAddress(fragment: string): void {
  if (fragment === location.hash) return;
  history.replaceState(null, "", fragment || location.pathname + location.search);
}

/**
 * Keeps the address as `fragment` says, a moment behind: browsers refuse one that changes with every letter
 * or with every move of a slider. Called while a component is made; writes at once when it is asked to.
 */
export function keepAddress(fragment: () => string): { writeNow: () => void } {
  $effect(() => {
    const wanted = fragment();
    const timer = setTimeout(() => writeAddress(wanted), DELAY_MS);
    return () => clearTimeout(timer);
  });
  return { writeNow: () => writeAddress(fragment()) };
}
