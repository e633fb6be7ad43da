// Numbers as files, and how a file reaches the visitor.

export interface Rows {
  columns: readonly string[];
  rows: readonly (readonly (string | number)[])[];
}

function csvField(value: string | number): string {
  const text = String(value);
  // A leading =, +, - or @ would be a formula to a spreadsheet; numbers may have their sign.
  const safe = /^[=+\-@\t]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csvBlob(lines: readonly (readonly (string | number)[])[]): Blob {
  const text = lines.map((cells) => `${cells.map(csvField).join(",")}\r\n`).join("");
  return new Blob([text], { type: "text/csv" });
}

/** As the page shows them, but with a minus sign and a decimal point that programs read. */
export function rowsCsv({ columns, rows }: Rows): Blob {
  const plain = (cell: string | number) =>
    typeof cell === "string" && /^−?[\d\u202f.,]+$/.test(cell)
      ? cell.replaceAll("\u202f", "").replace("−", "-").replace(",", ".")
      : cell;
  return csvBlob([columns, ...rows.map((row) => row.map(plain))]);
}

export const jsonBlob = (value: object): Blob =>
  new Blob([JSON.stringify(value, null, 1)], { type: "application/json" });

const SPELT: Readonly<Record<string, string>> = { ä: "ae", ö: "oe", ü: "ue", ß: "ss" };

/** A figure's title as the name of its files: letters that every system takes, umlauts spelt out. */
export const fileName = (title: string): string =>
  `heed-${title
    .toLowerCase()
    .replaceAll(/[äöüß]/g, (letter) => SPELT[letter] ?? letter)
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replace(/-$/, "")}`;

/** Hands a file to the browser's downloads. */
export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // Some browsers read the URL after the click has returned.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
