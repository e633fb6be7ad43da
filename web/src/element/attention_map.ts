// <attention-map>: a map of weights in any page, from numbers or from a file that heed's site saved.
// Computes nothing and needs nothing but this file; docs/site.md describes it.
import { type Cell, cellText, clampCell, type Matrix } from "../lib/matrix.js";
import { cellAt, type Layout, layoutMatrix } from "../lib/matrix_layout.js";
import { matrixShapes } from "../lib/matrix_scene.js";
import { paint } from "../lib/paint.js";
import { makePalette, type Palette } from "../lib/palette.js";
import colours from "../styles/colour.css?raw";
import { type MapData, mapOfFile, matrixOfMap } from "./map_data.js";

const MOST_HEIGHT = 720;

/** The colours of colour.css by theme: those of the dark one replace some. */
function paletteOf(dark: boolean): Palette {
  const [light = "", night = ""] = colours.split('[data-theme="dark"]');
  const read = (block: string, name: string) => new RegExp(`--${name}: (#\\w+)`).exec(block)?.[1];
  return makePalette(
    (name) => (dark ? read(night, name) : undefined) ?? read(light, name) ?? "",
    dark,
  );
}

const STYLE = `
  :host { display: block; font: 400 13px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
  :host([hidden]) { display: none; }
  .map { cursor: crosshair; }
  .map:focus-visible { outline: 2px solid #6672b8; outline-offset: 2px; }
  canvas { display: block; }
  p { min-height: 1.5em; margin: 4px 0 0; }
`;

const STEPS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/**
 * Attributes: `src` (a file saved as JSON), `head` (from 1), `theme` ("light", "dark"; absent: the
 * system's). Property `data`: a MapData. Event "pin": a cell was pinned ({row, column, value}) or
 * released (null).
 */
class AttentionMap extends HTMLElement {
  static readonly observedAttributes = ["src", "head", "theme"];

  private readonly map = document.createElement("div");
  private readonly canvas = document.createElement("canvas");
  private readonly readout = document.createElement("p");
  private readonly system = matchMedia("(prefers-color-scheme: dark)");
  private readonly observer = new ResizeObserver(() => this.draw());
  private readonly redraw = () => this.draw();
  private given: MapData | null = null;
  private matrix: Matrix | null = null;
  private layout: Layout | null = null;
  private hover: Cell | null = null;
  private pinned: Cell | null = null;
  private width = 0;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    this.map.className = "map";
    this.map.tabIndex = 0;
    this.map.setAttribute("role", "application");
    this.map.setAttribute("aria-roledescription", "matrix");
    this.canvas.setAttribute("aria-hidden", "true");
    this.readout.setAttribute("role", "status");
    this.map.append(this.canvas);
    root.append(this.map, this.readout);
    this.map.addEventListener("pointermove", (event) => this.point(this.cellOf(event)));
    this.map.addEventListener("pointerleave", () => this.point(null));
    this.map.addEventListener("click", (event) => this.pin(this.cellOf(event)));
    this.map.addEventListener("keydown", (event) => this.key(event));
  }

  get data(): MapData | null {
    return this.given;
  }

  /** Throws TypeError when the numbers do not fit the labels. */
  set data(data: MapData | null) {
    this.matrix = data && matrixOfMap(data);
    this.given = data;
    [this.hover, this.pinned] = [null, null];
    const { rowCount = 0, columnCount = 0 } = this.matrix ?? {};
    this.map.setAttribute("aria-label", `Weights of ${rowCount} queries and ${columnCount} keys`);
    this.draw();
  }

  connectedCallback(): void {
    this.observer.observe(this);
    this.system.addEventListener("change", this.redraw);
  }

  disconnectedCallback(): void {
    this.observer.disconnect();
    this.system.removeEventListener("change", this.redraw);
  }

  attributeChangedCallback(name: string): void {
    if (name === "theme") this.draw();
    else this.load();
  }

  private async load(): Promise<void> {
    const src = this.getAttribute("src");
    if (src === null) return;
    const head = this.getAttribute("head");
    try {
      const response = await fetch(src);
      if (!response.ok) throw new Error(`${src}: ${response.status}`);
      const file: unknown = await response.json();
      if (this.getAttribute("src") !== src) return;
      this.data = mapOfFile(file, head === null ? null : Number(head) - 1);
    } catch (error) {
      this.data = null;
      this.readout.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  private draw(): void {
    const { matrix } = this;
    this.width = this.clientWidth;
    this.map.hidden = matrix === null;
    if (!matrix || this.width === 0) return;
    const theme = this.getAttribute("theme");
    const dark = theme === "dark" || (theme !== "light" && this.system.matches);
    const palette = paletteOf(dark);
    const { background, hatch } = palette;
    this.layout = layoutMatrix(matrix, this.width, MOST_HEIGHT);
    const at = this.hover ?? this.pinned;
    const marks = { row: at?.row ?? null, column: at?.column ?? null, pin: this.pinned };
    const shapes = matrixShapes(matrix, this.layout, palette, marks);
    paint(this.canvas, {
      width: this.width,
      height: this.layout.height,
      background,
      hatch,
      shapes,
    });
    this.style.backgroundColor = background;
    this.readout.style.color = palette.ink;
    this.readout.textContent = at
      ? `${matrix.rowLabels[at.row]} looks at ${matrix.columnLabels[at.column]}: ${cellText(matrix, at, 4)}`
      : "";
  }

  private cellOf(event: MouseEvent): Cell | null {
    if (!this.matrix || !this.layout) return null;
    const box = this.canvas.getBoundingClientRect();
    return cellAt(this.matrix, this.layout, event.clientX - box.left, event.clientY - box.top);
  }

  private point(cell: Cell | null): void {
    this.hover = cell;
    this.draw();
  }

  private pin(cell: Cell | null): void {
    const same = cell?.row === this.pinned?.row && cell?.column === this.pinned?.column;
    this.pinned = same ? null : cell;
    this.draw();
    const { matrix, pinned } = this;
    const value =
      matrix && pinned ? matrix.values[pinned.row * matrix.columnCount + pinned.column] : null;
    this.dispatchEvent(new CustomEvent("pin", { detail: pinned && { ...pinned, value } }));
  }

  private key(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    const from = this.hover ?? this.pinned;
    if (!this.matrix || event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) {
      const [down, right] = step;
      const to = from
        ? { row: from.row + down, column: from.column + right }
        : { row: 0, column: 0 };
      this.point(clampCell(this.matrix, to));
    } else if (event.key === "Enter" && from) {
      this.pin(from);
    } else if (event.key === "Escape") {
      [this.hover, this.pinned] = [null, null];
      this.draw();
    } else {
      return;
    }
    event.preventDefault();
  }
}

customElements.define("attention-map", AttentionMap);
