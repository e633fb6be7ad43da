// Which symbols of a shared library are foreign.
import assert from "node:assert/strict";
import { test } from "node:test";
import { strangeSymbols } from "../../scripts/consumer.mjs";

test("OnlyTheNamespaceHeedIsShown", () => {
  const own = [
    "0000000000123456 T heed::Attention(heed::TensorView<float const>)",
    "0000000000123457 V typeinfo for heed::Error",
    "0000000000123458 V typeinfo name for heed::Error",
    "0000000000123459 V vtable for heed::Error",
  ];
  assert.deepEqual(strangeSymbols(own.join("\n")), []);
  const foreign = [
    "0000000000123460 W std::vector<float>::resize(unsigned long)",
    "0000000000123461 T hwy::Abort(char const*)",
    "0000000000123462 T heed::N_AVX2::Run()",
  ];
  assert.equal(strangeSymbols([...own, ...foreign].join("\n")).length, 3);
});
