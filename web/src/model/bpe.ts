// Byte-pair encoding (Sennrich et al. 2016): the pair that was learned first is joined first, of equals the
// leftmost, until no pair is known.

/** Ids are below this, so that a pair of them is one number. */
export const MOST_IDS: number = 2 ** 20;

/** What a pair becomes. */
interface Merge {
  readonly rank: number;
  readonly id: number;
}

export class Merges {
  /** By left * MOST_IDS + right. */
  private readonly merges = new Map<number, Merge>();

  /** Ranks count up from 0 as pairs are added; false where the pair was there before. */
  add(left: number, right: number, id: number): boolean {
    const pair = left * MOST_IDS + right;
    if (this.merges.has(pair)) return false;
    this.merges.set(pair, { rank: this.merges.size, id });
    return true;
  }

  find(left: number, right: number): Merge | undefined {
    return this.merges.get(left * MOST_IDS + right);
  }
}

/** Smallest number first. */
class Queue {
  private readonly heap: number[] = [];

  push(item: number): void {
    const { heap } = this;
    let at = heap.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if ((heap[parent] as number) <= item) break;
      heap[at] = heap[parent] as number;
      at = parent;
    }
    heap[at] = item;
  }

  pop(): number | undefined {
    const { heap } = this;
    const [first, last] = [heap[0], heap.pop()];
    if (heap.length > 0) this.sink(last as number);
    return first;
  }

  private sink(item: number): void {
    const { heap } = this;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && (heap[child + 1] as number) < (heap[child] as number)) child++;
      if ((heap[child] as number) >= item) break;
      heap[at] = heap[child] as number;
      at = child;
    }
    heap[at] = item;
  }
}

/** Room for a place beside the rank in one number below 2^53. */
const PLACES = 2 ** 32;

/** The tokens of a word, from those of its letters or bytes. O(n log n) for n of them. */
export function mergeWord(symbols: readonly number[], merges: Merges): number[] {
  const ids = [...symbols];
  const next = ids.map((_, at) => at + 1);
  const before = ids.map((_, at) => at - 1);
  const queue = new Queue();
  const mergeAt = (at: number) => {
    const right = ids[next[at] as number];
    return right === undefined ? undefined : merges.find(ids[at] as number, right);
  };
  const offer = (at: number) => {
    const merge = at < 0 ? undefined : mergeAt(at);
    if (merge) queue.push(merge.rank * PLACES + at);
  };
  ids.forEach((_, at) => {
    offer(at);
  });
  for (let item = queue.pop(); item !== undefined; item = queue.pop()) {
    const at = item % PLACES;
    const merge = ids[at] === GONE ? undefined : mergeAt(at);
    // What was offered may have become part of another token since.
    if (merge?.rank !== Math.floor(item / PLACES)) continue;
    const right = next[at] as number;
    ids[at] = merge.id;
    ids[right] = GONE;
    next[at] = next[right] as number;
    if ((next[at] as number) < ids.length) before[next[at] as number] = at;
    offer(before[at] as number);
    offer(at);
  }
  return ids.filter((id) => id !== GONE);
}

const GONE = -1;
