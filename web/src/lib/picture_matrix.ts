// The picture of an example as a matrix that the views draw.

import type { Picture } from "./example.js";
import { largestMagnitude, type Matrix } from "./matrix.js";
import { t } from "./messages.js";

const numbers = (count: number) => Array.from({ length: count }, (_, n) => String(n + 1));

export function matrixOfPicture(picture: Picture): Matrix {
  const { title, rows, columns, values, rowName, columnName, hidden } = picture;
  const isWeights = title === "Weights";
  // A difference of two maps has both signs.
  const sequential = isWeights && values.every((value) => value >= 0);
  return {
    title: isWeights ? t`Weights` : t`Output`,
    kind: sequential ? "weight" : isWeights ? "score" : "vector",
    ramp: sequential ? "weight" : isWeights ? "score" : "output",
    rowCount: rows,
    columnCount: columns,
    values,
    hidden: (row, column) => {
      const cell = row * columns + column;
      return hidden ? hidden[cell] === 1 : sequential && values[cell] === 0;
    },
    rowLabels: numbers(rows),
    columnLabels: numbers(columns),
    rowRole: isWeights ? "query" : "output",
    columnRole: isWeights ? "key" : "plain",
    rowName,
    columnName,
    limit: largestMagnitude(values),
  };
}
