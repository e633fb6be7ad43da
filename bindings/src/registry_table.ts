const END_OF_CELL = "\x1f";
const END_OF_ROW = "\x1e";

/** The rows of a table that C++ sent as one text, whose first row names the columns. */
export function readTable<Row>(text: string): Row[] {
  const [columns = [], ...rows] = text
    .slice(0, -1)
    .split(END_OF_ROW)
    .map((row) => row.split(END_OF_CELL));
  return rows.map((cells) => {
    const row: Record<string, string> = {};
    columns.forEach((column, i) => {
      row[column] = cells[i] ?? "";
    });
    return row as Row;
  });
}
