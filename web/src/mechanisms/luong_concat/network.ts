// A network of two units over query and key side by side: keys are looked at from two directions, and a query
// moves each step to where the key is like it.
export const UNITS = 2;
export const VECTOR: readonly number[] = [2, 2];
const DIRECTIONS = [0, 90];

/** [UNITS, 4]: the weights of the query, then those of the key. */
export function networkOf(size: number): number[] {
  return DIRECTIONS.flatMap((degrees) => {
    const radians = (degrees * Math.PI) / 180;
    const [x, y] = [size * Math.cos(radians), size * Math.sin(radians)];
    return [-x, -y, x, y];
  });
}
