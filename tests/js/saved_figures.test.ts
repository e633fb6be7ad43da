// What figures are saved as: every word lies inside the picture, and file names are spelt for any system.
import { describe, expect, it } from "vitest";
import { figureScene } from "../../web/src/lib/figure_file.js";
import { fileName, rowsCsv } from "../../web/src/lib/file.js";
import { makeMatrix } from "../../web/src/lib/make_matrix.js";
import { NO_MARKS } from "../../web/src/lib/matrix_scene.js";
import { linesWithin, shortenedTo, textWidth } from "../../web/src/lib/text_width.js";
import { expectInside, PALETTE, textsOf } from "./pictures.js";

const SIZE = 12;
const wide = (text: string) => textWidth(text, SIZE);

describe("lines", () => {
  it("are as long as there is room for, and lose nothing", () => {
    const text = "every query looks at each key that came before it, and at itself";
    const lines = linesWithin(text, 150, SIZE);
    expect(lines.join(" ")).toBe(text);
    for (const [at, line] of lines.entries()) {
      expect(wide(line)).toBeLessThanOrEqual(150);
      const next = lines[at + 1]?.split(" ")[0];
      if (next) expect(wide(`${line} ${next}`)).toBeGreaterThan(150);
    }
  });

  it("break a word that is wider than a line after a mark, else anywhere", () => {
    expect(linesWithin("see scaled_dot_product/attention", 100, SIZE)).toEqual([
      "see",
      "scaled_dot_",
      "product/",
      "attention",
    ]);
    const unmarked = linesWithin("x".repeat(40), 100, SIZE);
    expect(unmarked.join("")).toBe("x".repeat(40));
    expect(Math.max(...unmarked.map(wide))).toBeLessThanOrEqual(100);
  });

  it("keep together what a no-break space joins", () => {
    const lines = linesWithin("a weight of 26.7\u00a0% here", wide("a weight of 26.7"), SIZE);
    expect(lines).toEqual(["a weight of", "26.7\u00a0% here"]);
  });

  it("are one letter at least where there is no room at all", () => {
    expect(linesWithin("ab", 1, SIZE)).toEqual(["a", "b"]);
  });
});

describe("a saved figure", () => {
  const labels = ["the cat", "sat", "on a mat that is much too long for a row", "."];
  const matrix = makeMatrix({
    title: "Weights",
    kind: "weight",
    values: new Float32Array(16).fill(0.25),
    rowLabels: labels,
    columnLabels: labels,
  });

  it("has its title, reading and caption inside, whatever their length", () => {
    const words = {
      title:
        "The relative error of the estimated weights against the number of random features drawn",
      reading: `Pinned. ${"query salt, key pepper: weight 0.2500, ".repeat(4)}rank 1.`,
      caption: `Settings: https://heed.example/mechanisms/performer.html#v=1&text=${"salt+%26+".repeat(30)}`,
    };
    const scene = figureScene(matrix, NO_MARKS, words, PALETTE);
    expectInside(scene);
    const texts = textsOf(scene).map(({ text }) => text);
    expect(texts.join("")).toContain("salt+%26+salt");
    expect(texts.filter((text) => words.title.includes(text) && text.length > 9).length).toBe(2);
  });

  it("cuts row labels to the room that there is", () => {
    const label = "on a mat that is much too long for a row";
    const cut = shortenedTo(label, 100, SIZE, true);
    expect(cut).toMatch(/^on a mat.*…$/);
    expect(textWidth(cut, SIZE, true)).toBeLessThanOrEqual(100);
    expect(textWidth(`${cut.slice(0, -1)}xx`, SIZE, true)).toBeGreaterThan(100);
    expect(shortenedTo("sat", 100, SIZE)).toBe("sat");
  });
});

describe("files", () => {
  it("are named after the title, umlauts spelt out", () => {
    expect(fileName("Verlust über den Schritten")).toBe("heed-verlust-ueber-den-schritten");
    expect(fileName("Größe, Öl & Äther?")).toBe("heed-groesse-oel-aether");
  });

  it("of numbers are read by programs, grouped or not", async () => {
    const rows = { columns: ["n"], rows: [["−12\u202f345.5"], [7], ["1,5"]] };
    expect(await rowsCsv(rows).text()).toBe("n\r\n-12345.5\r\n7\r\n1.5\r\n");
  });
});
