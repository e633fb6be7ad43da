// What is typed into the controls of a mechanism's page, in both languages, and whom a refusal is for.
import { type Heed, load, type Parameter } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { keyboardFor, readTyped, typedText } from "../../web/src/lib/controls.js";
import { refusalOf } from "../../web/src/lib/refusal.js";

describe("readTyped", () => {
  it.each([
    ["1,5", 1.5],
    ["1.5", 1.5],
    ["−2,5", -2.5],
    ["1e3", 1000],
    ["1,2,3", "1,2,3"],
    ["one", "one"],
    [" ", undefined],
  ])("a number: %s", (text, value) => {
    expect(readTyped("number", text)).toBe(value);
    expect(readTyped("number", text, "de")).toBe(value);
  });

  it("a count has no decimal comma: a mark between thousands would be read as one", () => {
    expect(readTyped("count", "1,000")).toBe("1,000");
    expect(readTyped("count", "1000")).toBe(1000);
  });

  it.each([
    ["4,4", [4, 4], 4.4],
    ["4, 4", [4, 4], [4, 4]],
    ["4 4", [4, 4], [4, 4]],
    ["4; 4", [4, 4], [4, 4]],
    ["0.5;1.5", [0.5, 1.5], [0.5, 1.5]],
    ["0,5; 1,5", [0, 5, 1, 5], [0.5, 1.5]],
    ["4,4,2", [4, 4, 2], [4, 4, 2]],
    ["4,", 4, 4],
    [",", ",", ","],
    ["4, x", "4, x", "4, x"],
  ])("a list: %s", (text, english, german) => {
    expect(readTyped("numbers", text)).toEqual(english);
    expect(readTyped("numbers", text, "de")).toEqual(german);
  });

  it("whole numbers are divided by commas in every language", () => {
    expect(readTyped("integers", "4,4", "de")).toEqual([4, 4]);
  });

  it.each([1.5, -2, [0.5, 1.5], [4, 4], [4, 4, 2]])("reads what is shown of %s", (value) => {
    const type = Array.isArray(value) ? "numbers" : "number";
    for (const language of ["en", "de"] as const) {
      expect(readTyped(type, typedText(value, language), language)).toEqual(value);
    }
  });
});

describe("with the parameters of heed", () => {
  let heed: Heed;
  let controls: Parameter[];
  beforeAll(async () => {
    heed = await load({ threads: 1 });
    controls = heed.parameters.filter(({ name }) =>
      ["softcap", "scale", "windowLeft", "grid", "width", "scoreMod", "topK"].includes(name),
    );
  });
  it("a phone offers a minus, or what stands between numbers, where it is needed", () => {
    const keyboards = controls.map((one) => [one.name, keyboardFor(one)]);
    expect(Object.fromEntries(keyboards)).toEqual({
      softcap: "decimal",
      scale: "text",
      windowLeft: "numeric",
      grid: "text",
      width: "text",
      scoreMod: "text",
      topK: "numeric",
    });
  });

  function refused(params: Record<string, unknown>, last: string | null) {
    const one = [[1, 0]];
    try {
      heed.run("attention", { q: one, k: one, v: one }, params);
    } catch (error) {
      return refusalOf(error, controls, last);
    }
    throw new Error("heed took it");
  }

  it("a refusal is for the parameter that it names, by the name of its control", () => {
    expect(refused({ softcap: 0 }, "scale").name).toBe("softcap");
    const { name, message } = refused({ windowLeft: -1 }, null);
    expect(name).toBe("windowLeft");
    expect(message).toMatch(/^windowLeft: got -1/);
    expect(message).not.toContain("window.left");
  });

  it("else for what was changed last, and for none where that is no control", () => {
    const error = new Error("q: got rank 2, expected 4");
    expect(refusalOf(error, controls, "topK").name).toBe("topK");
    expect(refusalOf(error, controls, "causal").name).toBeNull();
    expect(refusalOf(error, controls, null)).toEqual({ name: null, message: error.message });
  });
});
