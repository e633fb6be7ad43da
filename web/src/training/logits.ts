// What a model favours, and how often that is right.

/** The token that each row of logits favours. */
export function favourites(logits: Float32Array, vocabulary: number): number[] {
  return Array.from({ length: logits.length / vocabulary }, (_, place) => {
    const row = logits.subarray(place * vocabulary, (place + 1) * vocabulary);
    return row.indexOf(Math.max(...row));
  });
}

/** The share of the places whose target can be known that are guessed right. */
export function accuracyOf(guesses: ArrayLike<number>, targets: ArrayLike<number>): number {
  let [known, right] = [0, 0];
  for (let place = 0; place < targets.length; place++) {
    if ((targets[place] as number) < 0) continue;
    known++;
    if (guesses[place] === targets[place]) right++;
  }
  return right / known;
}
