// A matrix for the views from what differs between pictures.

import { largestMagnitude, type Matrix } from "./matrix.js";
import { t } from "./messages.js";

type Needed = Pick<Matrix, "title" | "kind" | "values" | "rowLabels" | "columnLabels">;

export function makeMatrix(given: Needed & Partial<Matrix>): Matrix {
  const { kind, rowLabels, columnLabels, values } = given;
  return {
    ramp: kind === "weight" ? "weight" : kind === "score" ? "score" : "plain",
    rowCount: rowLabels.length,
    columnCount: columnLabels.length,
    hidden: () => false,
    rowRole: "query",
    columnRole: "key",
    rowName: t`query`,
    columnName: t`key`,
    limit: largestMagnitude(values),
    ...given,
  };
}

export const counted = (count: number, name = ""): string[] =>
  Array.from({ length: count }, (_, index) => `${name}${index + 1}`);
