import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";

const page = fileURLToPath(new URL("../../docs/conformance.md", import.meta.url));

interface Count {
  cases: number;
  passed: number;
  skipped: number;
  reasons: Set<string>;
}

/** Counts the cases of a suite by operator, prints the table, and keeps docs/conformance.md true. */
export class Tally {
  readonly #suite: string;
  readonly #groups = new Map<string, Count>();

  constructor(suite: string) {
    this.#suite = suite;
  }

  /** Announces a case. Call what it returns when the case passed. */
  announce(group: string, reason?: string): () => void {
    const fresh = { cases: 0, passed: 0, skipped: 0, reasons: new Set<string>() };
    const count = this.#groups.get(group) ?? fresh;
    this.#groups.set(group, count);
    count.cases++;
    if (reason !== undefined) {
      count.skipped++;
      count.reasons.add(reason);
    }
    return () => {
      count.passed++;
    };
  }

  #rows(): string[] {
    return [...this.#groups].map(
      ([group, { cases, passed, reasons }]) =>
        `| ${group} | ${cases} | ${passed} | ${[...reasons].join("; ")} |`,
    );
  }

  /**
   * Prints the table. With HEED_WRITE_CONFORMANCE=1 it is written into the page, else the page must
   * agree, unless some cases did not run or failed (then they are the news).
   */
  finish(): void {
    const counts = [...this.#groups.values()];
    if (counts.length === 0) return;
    const rows = this.#rows();
    console.log([`${this.#suite}`, "| group | cases | pass | not yet |", ...rows].join("\n"));
    if (counts.some(({ cases, passed, skipped }) => passed + skipped < cases)) return;
    const text = readFileSync(page, "utf8");
    const [begin, end] = [`<!-- ${this.#suite} -->`, `<!-- end of ${this.#suite} -->`];
    const from = text.indexOf(begin);
    const to = text.indexOf(end);
    expect(Math.min(from, to), `docs/conformance.md has no place for ${begin}`).toBeGreaterThan(0);
    const table = ["", "| | cases | pass | not yet |", "|---|---|---|---|", ...rows, ""].join("\n");
    const wanted = `${text.slice(0, from + begin.length)}\n${table}\n${text.slice(to)}`;
    if (process.env.HEED_WRITE_CONFORMANCE === "1") writeFileSync(page, wanted);
    else expect(text, "stale: HEED_WRITE_CONFORMANCE=1 writes it").toBe(wanted);
  }
}
