// The state of the page and what follows from it. Views read this; only actions change it.

import { writeAddress } from "./address.svelte.js";
import { core } from "./core.svelte.js";
import {
  type Agreement,
  type Attended,
  attend,
  checkAgainstReference,
  timeCall,
} from "./engine.js";
import { decodeLink, encodeLink } from "./link.js";
import { cellKey, EVERYTHING, hiddenByRule, type MaskRules, paintRules } from "./mask.js";
import type { Cell } from "./matrix.js";
import { t } from "./messages.js";
import { DEFAULTS, type Snapshot, START, type View } from "./snapshot.js";
import { RecentTimes } from "./timing.js";
import { tokenise } from "./tokens.js";
import { projectTokens } from "./vectors.js";

/** A cell that the pointer or the keyboard is on, and the matrix it belongs to. */
export interface Active extends Cell {
  view: View;
}

/** What an active cell means in terms of tokens: everything linked lights up from this. */
export interface Focus {
  query: number | null;
  key: number | null;
  cell: Active | null;
}

const MEASURE_CALLS = 31;
const MEASURE_BUDGET_MS = 8;

const PAIR_VIEWS: ReadonlySet<View> = new Set(["scores", "mask", "weights"]);
export const isPairView = (view: View): boolean => PAIR_VIEWS.has(view);

class Page {
  settings = $state.raw<Snapshot>(START);
  hover = $state.raw<Active | null>(null);
  painting = $state(false);
  /** A sentence about something that could not be done, and why. */
  notice = $state<string | null>(null);
  agreement = $state.raw<Agreement | null>(null);
  /** Milliseconds, the median of recent calls; NaN before the first. */
  medianTime = $state(Number.NaN);

  private readonly times = new RecentTimes();
  private timedLength = 0;
  private checks = 0;

  readonly tokenised = $derived(tokenise(this.settings.text));
  readonly tokens = $derived(this.tokenised.tokens);
  readonly projected = $derived(projectTokens(this.tokens));
  readonly rules = $derived<MaskRules>(this.settings);
  private readonly computed = $derived.by(() => this.compute());
  readonly attended = $derived(this.computed.attended);
  readonly failure = $derived(core.failure ?? this.computed.failure);

  readonly focus = $derived.by<Focus>(() => {
    const { pin, view } = this.settings;
    const last = this.tokens.length - 1;
    const cell = this.hover ?? (pin && { ...pin, view: isPairView(view) ? view : "weights" });
    if (!cell || cell.row > last) return { query: null, key: null, cell: null };
    if (isPairView(cell.view)) {
      if (cell.column > last) return { query: null, key: null, cell: null };
      return { query: cell.row, key: cell.column, cell };
    }
    const asQuery = cell.view === "q" || cell.view === "output" || cell.view === "x";
    const asKey = cell.view === "k" || cell.view === "v" || cell.view === "x";
    return { query: asQuery ? cell.row : null, key: asKey ? cell.row : null, cell };
  });

  private compute(): { attended: Attended | null; failure: string | null } {
    const nothing = { attended: null, failure: null };
    if (!core.heed || this.tokens.length === 0) return nothing;
    try {
      const attended = attend(core.heed, this.projected, this.settings, this.rules);
      return { attended, failure: null };
    } catch (error) {
      return { ...nothing, failure: error instanceof Error ? error.message : String(error) };
    }
  }

  /**
   * Notes how long the newest call took and compares its results with the float64 reference; when
   * calls overtake each other, the newest wins.
   */
  async check(): Promise<void> {
    const { attended, projected, settings, rules } = this;
    const turn = ++this.checks;
    if (!core.heed || !attended) {
      this.agreement = null;
      return;
    }
    this.noteTime(attended);
    const agreement = await checkAgainstReference(core.heed, projected, settings, rules, attended);
    if (turn === this.checks) this.agreement = agreement;
  }

  private noteTime(attended: Attended): void {
    // Times of another length would only blur the median.
    if (attended.length !== this.timedLength) this.times.clear();
    this.timedLength = attended.length;
    this.times.add(attended.milliseconds);
    this.medianTime = this.times.median();
  }

  /** Repeats the newest call a few times: the first ones of a visit run before the engine is warm. */
  measureAgain(): void {
    if (!core.heed || !this.attended) return;
    const deadline = performance.now() + MEASURE_BUDGET_MS;
    while (performance.now() < deadline && this.times.count < MEASURE_CALLS) {
      this.times.add(timeCall(core.heed, this.projected, this.settings, this.rules));
    }
    this.medianTime = this.times.median();
  }

  set(change: Partial<Snapshot>): void {
    this.settings = { ...this.settings, ...change };
    this.notice = null;
  }

  /** Replaces every mask rule at once. */
  setMask(change: Partial<MaskRules>): void {
    this.set({ ...EVERYTHING, ...change });
  }

  pin(cell: Cell | null): void {
    this.set({ pin: cell });
  }

  /** Lets a pinned cell go: a touch screen has no Escape. */
  togglePin(cell: Cell): void {
    const { pin } = this.settings;
    // Else a token that was tapped before would stay in focus.
    if (this.hover?.view === "x") this.hover = null;
    this.pin(pin?.row === cell.row && pin.column === cell.column ? null : cell);
  }

  show(view: View): void {
    const keepPin = isPairView(view) === isPairView(this.settings.view);
    this.set({ view, pin: keepPin ? this.settings.pin : null });
    this.hover = null;
  }

  /** Hides or shows one pair; says why when a rule already hides it. */
  paint(cell: Cell, hide: boolean): void {
    const rule = hiddenByRule(this.rules, cell.row, cell.column);
    if (rule && !hide) {
      this.notice = t`This cell is hidden by ${rule}; paint can only hide more. Turn the rules into paint to edit every cell.`;
      return;
    }
    const key = cellKey(cell.row, cell.column);
    if (this.rules.hidden.has(key) === hide) return;
    const hidden = new Set(this.rules.hidden);
    if (hide) hidden.add(key);
    else hidden.delete(key);
    this.set({ hidden });
  }

  turnRulesIntoPaint(): void {
    this.setMask({ hidden: paintRules(this.rules, this.tokens.length) });
  }

  reset(): void {
    const { text, example, dotNumbers, validLengths, kernel, width } = this.settings;
    this.settings = { ...DEFAULTS, text, example, dotNumbers, validLengths, kernel, width };
    this.notice = null;
    this.painting = false;
  }

  readLink(fragment: string): void {
    const { state, problem } = decodeLink(fragment);
    this.settings = state;
    this.notice = problem;
  }

  writeLink(): void {
    const fragment = encodeLink(this.settings);
    if (fragment === null) {
      this.notice = t`This state is too large for a link; export it as JSON instead.`;
      return;
    }
    writeAddress(fragment ? `#${fragment}` : "");
  }
}

export const page = new Page();
