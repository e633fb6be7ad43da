// The mark of a build in its WebAssembly files.
import assert from "node:assert/strict";
import { test } from "node:test";
import { buildIdOf, withSection } from "../../scripts/build_id.mjs";

const EMPTY = Buffer.from([0, 97, 115, 109, 1, 0, 0, 0]);

test("a mark is a custom section, and the module stays valid", async () => {
  for (const text of ["0123456789abcdef", "x".repeat(300)]) {
    const module = await WebAssembly.compile(withSection(EMPTY, text));
    const [section] = WebAssembly.Module.customSections(module, "heed.build");
    assert.equal(new TextDecoder().decode(section), text);
  }
});

test("an id follows every byte and every name, and not the order of a folder", () => {
  const files = [
    ["a.wasm", Buffer.from("one")],
    ["b.wasm", Buffer.from("two")],
  ];
  const id = buildIdOf(files);
  assert.match(id, /^[0-9a-f]{16}$/);
  assert.equal(buildIdOf([...files].reverse()), id);
  for (const other of [
    [files[0], ["b.wasm", Buffer.from("twO")]],
    [files[0], ["c.wasm", Buffer.from("two")]],
    [["a.wasm", Buffer.from("oneb.wasm")]],
  ]) {
    assert.notEqual(buildIdOf(other), id);
  }
});
