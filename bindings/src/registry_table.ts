const END_OF_CELL = "\x1f";
const END_OF_ROW = "\x1e";

/** Names with one space between them, or "" for all: gives the table of their rows. */
export type ReadRows = (names: string) => string;

/**
 * A table that C++ sends as text: the first row names the columns, the first column the rows. Loading needs
 * few of them, so a row is sent, and made into what `make` says, when it is first asked for.
 */
export class Table<Row, Made> {
  readonly #read: ReadRows;
  readonly #make: (row: Row) => Made;
  readonly #made = new Map<string, Made>();
  #names: readonly string[] | undefined;

  constructor(read: ReadRows, make: (row: Row) => Made) {
    this.#read = read;
    this.#make = make;
  }

  /** Makes the rows that are not there yet; gives the names of all that came. */
  #receive(wanted: string): readonly string[] {
    const [columns = "", ...rows] = this.#read(wanted).slice(0, -1).split(END_OF_ROW);
    const keys = columns.split(END_OF_CELL);
    return rows.map((row) => {
      const cells = row.split(END_OF_CELL);
      const [name = ""] = cells;
      if (!this.#made.has(name)) {
        const entries = keys.map((key, i) => [key, cells[i] ?? ""]);
        this.#made.set(name, this.#make(Object.fromEntries(entries) as Row));
      }
      return name;
    });
  }

  /** The names of the rows, in the order of the table. */
  get names(): readonly string[] {
    this.#names ??= this.#receive("");
    return this.#names;
  }

  /** Asks at once for rows that will be needed together. */
  expect(names: readonly string[]): void {
    const missing = this.#names ? [] : names.filter((name) => !this.#made.has(name));
    if (missing.length > 0) this.#receive(missing.join(" "));
  }

  get(name: string): Made | undefined {
    this.expect([name]);
    return this.#made.get(name);
  }

  /** All rows, frozen. */
  all(): readonly Made[] {
    return Object.freeze(this.names.map((name) => this.get(name) as Made));
  }
}
