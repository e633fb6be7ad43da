/** What a token leaves of the state, from the slowest to the fastest channel, and what a full stop leaves. */
export interface Kept {
  slow: number;
  /** Absent: all channels are alike. */
  fast?: number;
  stop: number;
}
