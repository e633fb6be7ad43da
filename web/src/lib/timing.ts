// The median of recent calls: one slow frame does not change the number on the page.

export class RecentTimes {
  private readonly times: number[] = [];

  constructor(private readonly capacity = 31) {}

  add(milliseconds: number): void {
    this.times.push(milliseconds);
    if (this.times.length > this.capacity) this.times.shift();
  }

  clear(): void {
    this.times.length = 0;
  }

  get count(): number {
    return this.times.length;
  }

  median(): number {
    const sorted = [...this.times].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    const upper = sorted[middle] ?? Number.NaN;
    return sorted.length % 2 ? upper : (upper + (sorted[middle - 1] ?? upper)) / 2;
  }
}
