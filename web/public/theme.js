// Runs before the first paint, so that a dark page never flashes white, an embedded one its header, nor
// a page its other language.
(() => {
  const html = document.documentElement;
  const search = new URLSearchParams(location.search);
  const known = (language) => ["en", "de"].includes(language);
  let choice = "auto";
  let language = search.get("lang");
  try {
    choice = localStorage.getItem("heed-theme") ?? "auto";
    if (known(language)) localStorage.setItem("heed-language", language);
    else language = localStorage.getItem("heed-language");
  } catch {
    // Storage may be forbidden: follow the system, and the address.
  }
  if (known(language) && language !== html.lang) {
    const home = new URL(`${html.dataset.home}/`, location.href);
    const path = location.pathname.slice(home.pathname.length).replace(/^de(\/|$)/, "");
    search.delete("lang");
    home.pathname += (language === "de" ? "de/" : "") + path;
    home.search = String(search);
    home.hash = location.hash;
    location.replace(home);
    return;
  }
  if (search.has("lang")) {
    search.delete("lang");
    const rest = search.size > 0 ? `?${search}` : "";
    history.replaceState(null, "", location.pathname + rest + location.hash);
  }
  const dark =
    choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  html.dataset.theme = dark ? "dark" : "light";
  // A figure inside another page: nothing else of this one is painted.
  const embed = search.get("embed");
  if (["1", "parameters"].includes(embed)) {
    html.dataset.embed = embed;
  }
})();
