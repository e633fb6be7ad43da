// Runs before the first paint, so that a dark page never flashes white, nor an embedded one its header.
(() => {
  let choice = "auto";
  try {
    choice = localStorage.getItem("heed-theme") ?? "auto";
  } catch {
    // Storage may be forbidden: follow the system.
  }
  const dark =
    choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  // A figure inside another page: nothing else of this one is painted.
  if (new URLSearchParams(location.search).get("embed") === "1") {
    document.documentElement.dataset.embed = "1";
  }
})();
