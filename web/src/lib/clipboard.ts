// Puts text on the clipboard, also on pages of plain HTTP, which are no secure contexts: a class opens the
// site from a machine in its network so.

/** Selects a copy of the text and has the browser copy what is selected. */
function copySelected(text: string): boolean {
  const area = document.createElement("textarea");
  const before = document.activeElement as HTMLElement | null;
  area.value = text;
  area.readOnly = true;
  area.className = "spoken";
  document.body.append(area);
  area.focus({ preventScroll: true });
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus({ preventScroll: true });
  return done;
}

/** Throws where the browser does not let it. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else if (!copySelected(text)) throw new Error("no clipboard");
}
