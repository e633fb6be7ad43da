// What computes, in words of the page: workers tell the facts alone, since they know no other language.
import { t } from "./messages.js";

export interface Backend {
  /** The build that was chosen: "plain" or "relaxed". */
  simd: string;
  threads: number;
}

/** "relaxed SIMD, 1 thread". */
export const backendWords = ({ simd, threads }: Backend): string =>
  t`${simd} SIMD, ${threads} ${threads === 1 ? t`thread` : t`threads`}`;
