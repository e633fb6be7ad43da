// Runs before the first paint, so that a dark page never flashes white.
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
})();
