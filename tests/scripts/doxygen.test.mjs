// What Doxygen is given to read says what the headers say.
import assert from "node:assert/strict";
import { test } from "node:test";
import { strictPage } from "../../scripts/api_cpp.mjs";
import { filter } from "../../scripts/doxygen/filter.mjs";

test("CommentsBecomeDocumentation", () => {
  const header = ["// A file.", "#ifndef A_", "", "// Sum of `a < b` & c.", "int Sum();"].join(
    "\n",
  );
  assert.equal(
    filter(header),
    "/**\n@file\n A file.\n*/\n#ifndef A_\n\n/**\n Sum of <tt>a \\< b</tt> \\& c.\n*/\nint Sum();",
  );
});

test("PicturesStayAsTheyAreWritten", () => {
  const header = ["int a;", "// Sees:", "//   x . <", "//   x x", "// Done.", "int b;"].join("\n");
  const text = filter(header);
  assert.match(text, /Sees:\n@verbatim\n {3}x \. <\n {3}x x\n@endverbatim\n Done\./);
});

test("CommentsBehindALineBelongToIt", () => {
  const header = ["  int a = 1;  // one,", "              // or two", "  int b;"].join("\n");
  assert.equal(filter(header), "  int a = 1; /**<  one,  or two */\n  int b;");
});

test("PagesHoldNothingInline", () => {
  const page = '<p style="a" onclick="b()">c</p><script type="text/javascript">d</script>';
  assert.equal(strictPage(page, "page"), "<p>c</p>");
  assert.throws(() => strictPage('<b onload="x">', "page"), /page: has more that is inline/);
});
