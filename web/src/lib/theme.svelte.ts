// Auto, light or dark. public/theme.js has set data-theme before the first paint; this keeps it
// true afterwards and hands the colours to everything that draws.
import { type Palette, readPalette } from "./palette.js";

export type ThemeChoice = "auto" | "light" | "dark";
const STORAGE_KEY = "heed-theme";

function stored(): ThemeChoice {
  try {
    const choice = localStorage.getItem(STORAGE_KEY);
    return choice === "light" || choice === "dark" ? choice : "auto";
  } catch {
    return "auto"; // Storage may be forbidden; the choice then lasts for this visit.
  }
}

class Theme {
  choice = $state<ThemeChoice>(stored());
  palette = $state.raw<Palette>(readPalette());
  private readonly system = matchMedia("(prefers-color-scheme: dark)");

  constructor() {
    this.system.addEventListener("change", () => this.apply());
    this.apply();
  }

  choose(choice: ThemeChoice): void {
    this.choice = choice;
    try {
      if (choice === "auto") localStorage.removeItem(STORAGE_KEY);
      else localStorage.setItem(STORAGE_KEY, choice);
    } catch {
      // See stored().
    }
    this.apply();
  }

  private apply(): void {
    const dark = this.choice === "dark" || (this.choice === "auto" && this.system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    this.palette = readPalette();
  }
}

export const theme = new Theme();
