// Where this page stands in the site, and what every page does once.
import { t } from "./messages.js";
import { type ThemeChoice, theme } from "./theme.svelte.js";

/** Leads from this page to the first folder of its language: "." or "..". */
const root = document.documentElement.dataset.root ?? ".";

/** The site's first folder, whatever the language. */
const home = document.documentElement.dataset.home ?? ".";

/** The reference that TypeDoc makes of the npm package. */
export const apiPage = `${home}/api/index.html`;

/** The one that Doxygen makes of the headers. */
export const cppApiPage = `${home}/api-cpp/index.html`;

export const galleryPage = `${root}/gallery.html`;
export const mechanismPage = (id: string): string => `${root}/mechanisms/${id}.html`;

/** What is shown inside another page, "?embed=1": the figure, or "parameters": a mechanism's own ones. */
type EmbeddedPart = "1" | "parameters";
/** Read before the first paint by public/theme.js. */
export const embeddedPart = document.documentElement.dataset.embed as EmbeddedPart | undefined;
export const embedded = embeddedPart !== undefined;

/** The address without "?embed=1": the page as a whole. */
export const wholePage = (): string => location.pathname + location.hash;

/** HTML that shows a page's figure, in the state of its address, inside another page. */
export function embedCode(address: string, part: EmbeddedPart = "1"): string {
  const url = new URL(address);
  url.search = `?embed=${part}`;
  const src = url.href.replaceAll("&", "&amp;").replaceAll('"', "%22");
  return `<iframe src="${src}" title="heed" width="100%" height="720" loading="lazy"></iframe>`;
}

function rememberLanguage(language: string): void {
  try {
    localStorage.setItem("heed-language", language);
  } catch {
    // Storage may be forbidden; the address then says it alone.
  }
}

/** The header is HTML; its controls are connected here. */
export function connectHeader(): void {
  const other = document.querySelector<HTMLAnchorElement>("#language");
  other?.addEventListener("click", () => {
    rememberLanguage(other.lang);
    other.search = "";
    other.hash = location.hash;
  });
  // Fragments of the site are state: a way to the content may not leave one.
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    const main = document.querySelector("main");
    main?.setAttribute("tabindex", "-1");
    main?.focus();
  });
  const select = document.querySelector<HTMLSelectElement>("#theme");
  if (!select) throw new Error("the page has no #theme");
  select.value = theme.choice;
  select.addEventListener("change", () => theme.choose(select.value as ThemeChoice));
}

/** A frame shows a part of a page, and is named by the whole of it. */
export function nameFrame(): void {
  if (!embedded) return;
  const name = document.createElement("h1");
  name.className = "spoken";
  name.textContent = document.title;
  document.querySelector("main")?.prepend(name);
}

/** Long after the first numbers are on the page, and never in their way. */
const KEEP_DELAY_MS = 3000;

async function keepThisVisit(): Promise<void> {
  await navigator.serviceWorker.register(`${home}/service_worker.js`, { updateViaCache: "none" });
  const { active } = await navigator.serviceWorker.ready;
  const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    document.documentElement.dataset.offline = "ready";
  };
  active?.postMessage({ loaded: [...new Set([location.href.split("#")[0], ...loaded])] }, [port2]);
}

/** Keeps the site for visits without a network, where the browser can. */
export function keepForOffline(): void {
  if (import.meta.env.DEV || !isSecureContext || !("serviceWorker" in navigator)) return;
  // A site that cannot be kept works as before, with a network.
  setTimeout(() => keepThisVisit().catch(() => {}), KEEP_DELAY_MS);
}

/** Why a part of the page could not be loaded: a browser's own words are "Failed to fetch". */
export function loadProblem(error: unknown): string {
  if (navigator.onLine) return error instanceof Error ? error.message : String(error);
  return t`You are offline, and this part has not been loaded yet. Open this page once with a connection.`;
}
