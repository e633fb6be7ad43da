const END_OF_CELL = "\x1f";
const END_OF_ROW = "\x1e";

/**
 * A table that C++ sent as one text: the first row names the columns, the first column the rows. A row is taken
 * apart, and made into what `make` says, when it is first asked for: loading needs few of them.
 */
export class Table<Row, Made> {
  readonly #columns: readonly string[];
  readonly #rows: ReadonlyMap<string, string>;
  readonly #made = new Map<string, Made>();
  readonly #make: (row: Row) => Made;

  constructor(text: string, make: (row: Row) => Made) {
    const [columns = "", ...rows] = text.slice(0, -1).split(END_OF_ROW);
    this.#columns = columns.split(END_OF_CELL);
    this.#rows = new Map(rows.map((row) => [row.slice(0, row.indexOf(END_OF_CELL)), row]));
    this.#make = make;
  }

  /** The names of the rows, in the order of the table. */
  get names(): string[] {
    return [...this.#rows.keys()];
  }

  get(name: string): Made | undefined {
    const made = this.#made.get(name);
    const row = this.#rows.get(name);
    if (made !== undefined || row === undefined) return made;
    const cells = row.split(END_OF_CELL);
    const entries = this.#columns.map((column, i) => [column, cells[i] ?? ""]);
    const fresh = this.#make(Object.fromEntries(entries) as Row);
    this.#made.set(name, fresh);
    return fresh;
  }

  /** All rows, frozen. */
  all(): readonly Made[] {
    return Object.freeze(this.names.map((name) => this.get(name) as Made));
  }
}
