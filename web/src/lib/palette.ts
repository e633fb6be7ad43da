// Colours live in CSS (src/styles/colour.css), once per theme. Canvas and SVG read them from there.
import { mixRamp, type Ramp, sequentialRamp } from "./ramp.js";

export type Role = "query" | "key" | "value" | "output" | "plain";
export type RampName = "weight" | "score" | Role;

export interface Palette {
  background: string;
  ink: string;
  soft: string;
  faint: string;
  hatch: string;
  roleText: Record<Role, string>;
  ramps: Record<RampName, Ramp>;
}

const ROLES: readonly Role[] = ["query", "key", "value", "output", "plain"];

/** From the colours of a theme, by their names in colour.css without the dashes. */
export function makePalette(read: (name: string) => string, dark: boolean): Palette {
  const colour = (name: string) => {
    const value = read(name).trim();
    if (!/^#[0-9a-f]{6}$/i.test(value)) throw new Error(`--${name} is "${value}", not #rrggbb`);
    return value;
  };
  const background = colour("background");
  const below = colour("below-zero");
  const ramps = Object.fromEntries(
    ROLES.map((role) => [role, mixRamp(below, background, colour(`${role}-fill`))]),
  ) as Record<Role, Ramp>;
  return {
    background,
    ink: colour("ink"),
    soft: colour("soft"),
    faint: colour("faint"),
    hatch: colour("hatch"),
    roleText: Object.fromEntries(ROLES.map((role) => [role, colour(`${role}-text`)])) as Record<
      Role,
      string
    >,
    ramps: {
      ...ramps,
      weight: sequentialRamp(background, dark),
      score: mixRamp(colour("score-low"), background, colour("score-high")),
    },
  };
}

/** The palette of the theme that the page shows now. */
export function readPalette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const dark = document.documentElement.dataset.theme === "dark";
  return makePalette((name) => style.getPropertyValue(`--${name}`), dark);
}
