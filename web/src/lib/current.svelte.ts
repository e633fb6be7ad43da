// The matrix in the figure and what stands out in it, shared by the figure, the read-out and the
// exports.
import type { Matrix } from "./matrix.js";
import type { Marks } from "./matrix_scene.js";
import { type Active, isPairView, page } from "./page.svelte.js";
import type { View } from "./snapshot.js";
import { viewMatrix } from "./views.js";

class Current {
  readonly matrix = $derived.by(() => this.matrixOf(page.settings.view));
  readonly marks = $derived.by(() => this.marksOf(page.settings.view));

  /** The cell that the read-out speaks of, in the figure's matrix. */
  readonly cell = $derived.by<Active | null>(() => {
    const { view, pin } = page.settings;
    const { hover } = page;
    const inFigure = hover && (hover.view === view || (isPairView(hover.view) && isPairView(view)));
    const cell = inFigure ? hover : pin;
    const matrix = this.matrix;
    if (!cell || !matrix) return null;
    if (cell.row >= matrix.rowCount || cell.column >= matrix.columnCount) return null;
    return { row: cell.row, column: cell.column, view };
  });

  matrixOf(view: View, head = page.settings.head): Matrix | null {
    const { attended, projected, tokens, settings } = page;
    if (!attended) return null;
    return viewMatrix(view, head, tokens, projected, attended, settings.temperature);
  }

  /** Linked marks: a pair lights up its query's row of Q and O, and its key's row of K and V. */
  marksOf(view: View): Marks {
    const { focus, settings } = page;
    const own = page.hover?.view === view ? page.hover : null;
    const pinned = isPairView(view) ? isPairView(settings.view) : settings.view === view;
    const matrixPin = settings.pin && pinned && this.fits(settings.pin) ? settings.pin : null;
    if (isPairView(view)) return { row: focus.query, column: focus.key, pin: matrixPin };
    const rowFrom = view === "k" || view === "v" ? focus.key : focus.query;
    const row = rowFrom ?? (view === "x" ? focus.key : null);
    return { row, column: own?.column ?? null, pin: matrixPin };
  }

  private fits(pin: { row: number; column: number }): boolean {
    const columns = isPairView(page.settings.view)
      ? page.tokens.length
      : (this.matrix?.columnCount ?? 0);
    return pin.row < page.tokens.length && pin.column < columns;
  }
}

export const current = new Current();
