// Colour ramps as tables of 256 steps, interpolated in OKLab so that equal steps look equal.

/** 256 colours "#rrggbb" from the low end to the high end. */
export type Ramp = readonly string[];

type Lab = readonly [number, number, number];

const STEPS = 256;

// Eleven stops of matplotlib's viridis (CC0), from dark to light.
const VIRIDIS = [
  "#440154",
  "#482475",
  "#414487",
  "#355f8d",
  "#2a788e",
  "#21918c",
  "#22a884",
  "#44bf70",
  "#7ad151",
  "#bddf26",
  "#fde725",
];

/** The luminance on which black and white read equally well: sqrt(1.05 * 0.05) - 0.05. */
const EQUAL_CONTRAST = 0.1791;

/** Where the ramp has left the page's background and is viridis alone. */
const FADE_IN = 0.16;

function toLinear(channel: number): number {
  return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
}

function fromLinear(channel: number): number {
  const clamped = Math.min(1, Math.max(0, channel));
  return clamped <= 0.0031308 ? 12.92 * clamped : 1.055 * clamped ** (1 / 2.4) - 0.055;
}

function linearChannels(hex: string): Lab {
  const channel = (at: number) => toLinear(Number.parseInt(hex.slice(at, at + 2), 16) / 255);
  return [channel(1), channel(3), channel(5)];
}

// Björn Ottosson's OKLab matrices.
function toLab(hex: string): Lab {
  const [r, g, b] = linearChannels(hex);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toHex([lightness, a, b]: Lab): string {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const channels = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return `#${channels
    .map((channel) =>
      Math.round(255 * fromLinear(channel))
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

function mix(from: Lab, to: Lab, t: number): Lab {
  const at = (index: 0 | 1 | 2) => from[index] + t * (to[index] - from[index]);
  return [at(0), at(1), at(2)];
}

function sample(stops: readonly Lab[], t: number): Lab {
  const place = t * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(place));
  return mix(stops[index] as Lab, stops[index + 1] as Lab, place - index);
}

function table(colourAt: (t: number) => Lab): Ramp {
  return Array.from({ length: STEPS }, (_, step) => toHex(colourAt(step / (STEPS - 1))));
}

/** low at -1, middle at 0, high at +1. */
export function mixRamp(low: string, middle: string, high: string): Ramp {
  const stops = [low, middle, high].map(toLab);
  return table((t) => sample(stops, t));
}

/** Viridis whose zero is the page's background: light pages run it from yellow to violet. */
export function sequentialRamp(background: string, dark: boolean): Ramp {
  const stops = (dark ? VIRIDIS : [...VIRIDIS].reverse()).map(toLab);
  const zero = toLab(background);
  return table((t) => mix(zero, sample(stops, t), Math.min(1, t / FADE_IN)));
}

/** The colour at t in [0, 1]; t outside is clamped. */
export function rampColour(ramp: Ramp, t: number): string {
  const step = Math.round(Math.min(1, Math.max(0, t)) * (STEPS - 1));
  return ramp[step] as string;
}

/** Relative luminance of WCAG, 0 to 1. */
export function luminance(hex: string): number {
  const [r, g, b] = linearChannels(hex);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black or white, whichever reads better on `hex`: never below a contrast of 4.58. */
export function inkOn(hex: string): string {
  return luminance(hex) > EQUAL_CONTRAST ? "#000000" : "#ffffff";
}
