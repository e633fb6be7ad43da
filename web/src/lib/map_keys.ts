/** Rows down and columns right that an arrow key moves by. */
export const ARROWS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** What a key multiplies the part in sight by. */
export const CLOSER: Readonly<Record<string, number>> = { "+": 0.5, "=": 0.5, "-": 2 };
