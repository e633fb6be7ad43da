// What Doxygen reads of a header: its plain comments as comments of Doxygen, their words unchanged.
//   node scripts/doxygen/filter.mjs header.h
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const special = /[\\@&$#<>%"]|::/g;
const escaped = (text) => text.replaceAll(special, (sign) => `\\${sign}`);

// `code` of the comments, which Doxygen should not read as anything else.
function words(text) {
  const parts = text.split("`");
  return parts.map((part, i) => (i % 2 ? `<tt>${escaped(part)}</tt>` : escaped(part))).join("");
}

// Pictures of masks and formulas on lines of their own are indented: shown as they are written.
function block(comments) {
  const lines = [];
  let isPicture = false;
  for (const text of comments) {
    const indented = /^ {3,}\S/.test(text);
    if (isPicture && !indented) lines.push("@endverbatim");
    if (!isPicture && indented) lines.push("@verbatim");
    isPicture = indented;
    lines.push(indented ? text : words(text));
  }
  if (isPicture) lines.push("@endverbatim");
  return lines;
}

const comment = (line) => /^(\s*)\/\/(.*)$/.exec(line);
const isTrailing = (line) => /^(\s*[^/\s][^"]*?[^/\s"])\s+\/\/(.*)$/.exec(line);

// Consecutive lines of comment from `from` on, whose signs stand in the same column.
function commentsFrom(lines, from, column) {
  const found = [];
  for (let i = from; i < lines.length; ++i) {
    const match = comment(lines[i]);
    if (!match || (column !== undefined && match[1].length !== column)) break;
    found.push(match[2]);
  }
  return found;
}

export function filter(source) {
  const lines = source.split("\n");
  const written = [];
  for (let i = 0; i < lines.length; ++i) {
    if (comment(lines[i])) {
      const found = commentsFrom(lines, i);
      const opening = i === 0 ? ["@file"] : [];
      written.push("/**", ...opening, ...block(found), "*/");
      i += found.length - 1;
      continue;
    }
    const trailing = isTrailing(lines[i]);
    if (!trailing) {
      written.push(lines[i]);
      continue;
    }
    const rest = commentsFrom(lines, i + 1, lines[i].lastIndexOf("//"));
    written.push(`${trailing[1]} /**< ${[trailing[2], ...rest].map(words).join(" ")} */`);
    i += rest.length;
  }
  return written.join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.stdout.write(filter(readFileSync(process.argv[2], "utf8")));
}
