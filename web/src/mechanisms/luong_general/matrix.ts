// The matrix of the figure, [2, 2] row by row: it turns, and weighs the second dimension of keys.
export function matrixOf(degrees: number, second: number): number[] {
  const [cos, sin] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  // The score is q M k: with k as it is, q is turned by the angle.
  return [cos, second * sin, -sin, second * cos];
}
