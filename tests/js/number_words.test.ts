// How numbers are written: one form everywhere, and no line ends between a number and its unit.
import { describe, expect, it } from "vitest";
import { typedText } from "../../web/src/lib/controls.js";
import {
  everyDigit,
  fixed,
  grouped,
  milliseconds,
  powerOfTen,
  scientific,
} from "../../web/src/lib/format.js";
import { inEnglish, pieces, t } from "../../web/src/lib/messages.js";
import { shortCount } from "../../web/src/lib/plot.js";

describe("numbers", () => {
  it("are grouped from 10 000 on, whoever writes them", () => {
    expect([grouped(9999), grouped(10_000), grouped(1_066_112)]).toEqual([
      "9999",
      "10\u202f000",
      "1\u202f066\u202f112",
    ]);
    expect(fixed(54_410.25, 2)).toBe("54\u202f410.25");
    expect(fixed(-123_456.12345, 5)).toBe("−123\u202f456.12345");
    expect(fixed(9999.5, 1)).toBe("9999.5");
    expect(fixed(-0.0001, 2)).toBe("0.00");
    expect(everyDigit(133_440)).toBe("133\u202f440");
  });

  it("have powers of ten in one form", () => {
    expect(scientific(7.6e-7)).toBe("7.6\u00a0×\u00a010⁻⁷");
    expect(scientific(-2e10)).toBe("−2.0\u00a0×\u00a010¹⁰");
    expect(powerOfTen(1e-6)).toBe("10⁻⁶");
    expect(everyDigit(7.6123e-7)).toBe("7.6123\u00a0×\u00a010⁻⁷");
    expect(everyDigit(484_838.25)).toBe("484\u202f838.25");
    expect(everyDigit(0.25)).toBe("0.25");
    expect(shortCount(0.1)).toBe("0.1");
  });

  it("are typed as the sentences about them say", () => {
    expect(
      ["1e-05", 1e-6, 0.5, "", "rms", [1, 1e-5], true].map((value) => typedText(value)),
    ).toEqual(["1e-5", "1e-6", "0.5", "", "rms", "1, 1e-5", "true"]);
  });
});

describe("no line ends", () => {
  it("between a number and its unit", () => {
    expect([milliseconds(0.05), milliseconds(0.4), milliseconds(7850)]).toEqual([
      "50\u00a0µs",
      "0.40\u00a0ms",
      "7.85\u00a0s",
    ]);
    expect(t`off by ${12.6} % on average`).toBe("off by 12.6\u00a0% on average");
    expect(t`${3} ms of 80 % at ${5} GFLOP/s`).toBe("3\u00a0ms of 80\u00a0% at 5\u00a0GFLOP/s");
    expect(pieces("<b>{}</b> % of {} samples")).toEqual(["", "", "", "\u00a0% of ", " samples"]);
  });

  it("between a head and its number, and elsewhere it may", () => {
    expect(t`Layer ${1}, head ${3}: ${2} seconds`).toBe("Layer 1, head\u00a03: 2 seconds");
    expect(pieces("Head {} of {}")).toEqual(["Head\u00a0", " of ", ""]);
    expect(t`ahead ${2} steps`).toBe("ahead 2 steps");
    expect(inEnglish(t`Head ${1}`.replace("1", "{}"))).toBe("Head {}");
  });
});
