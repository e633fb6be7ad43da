// The sliders and scrubbers of a crafted figure by name, so that a link can say where they stand.
import { figureFromFragment } from "./fragment.js";
import { inEnglish } from "./messages.js";

interface Control {
  min: number;
  max: number;
  resting: number;
  move: (value: number) => void;
}

/** The same in every language: links are shared across them. */
const nameOf = (label: string): string =>
  inEnglish(label)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-");

class FigureControls {
  /** Those that do not rest. */
  moved = $state.raw<Readonly<Record<string, number>>>({});
  private readonly controls = new Map<string, Control>();
  private asked = figureFromFragment(location.hash);

  /** Where a link wants them; the others rest. */
  follow(fragment: string): void {
    this.asked = figureFromFragment(fragment);
    for (const [name, { resting, move }] of this.controls) {
      if (!this.obey(name)) move(resting);
    }
  }

  /** Returns how the control leaves. */
  add(label: string, control: Control): () => void {
    const name = nameOf(label);
    this.controls.set(name, control);
    this.obey(name);
    return () => {
      this.controls.delete(name);
    };
  }

  report(label: string, value: number, resting: number): void {
    const name = nameOf(label);
    if (this.moved[name] === (value === resting ? undefined : value)) return;
    const { [name]: _, ...others } = this.moved;
    this.moved = value === resting ? others : { ...others, [name]: value };
  }

  private obey(name: string): boolean {
    const [control, value] = [this.controls.get(name), this.asked[name]];
    if (!control || value === undefined || value < control.min || value > control.max) return false;
    control.move(value);
    return true;
  }
}

export const figureControls = new FigureControls();

/** What a control needs of its frame: set by CraftedFrame. */
export const IN_FIGURE = Symbol("in a crafted figure");
