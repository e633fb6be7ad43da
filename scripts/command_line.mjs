// Command lines of the scripts: --help prints the comment that heads a script, a mistake is one line and
// status 2, and paths count from the folder in which the command was typed.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

/** npm changes to the root before it runs a script, and says where it was called. */
export const typedFolder = process.env.INIT_CWD || process.cwd();

/** A path as it was typed; what is absent stays absent. */
export const typedPath = (path) => path && resolve(typedFolder, path);

/** The comment that heads a file, without its marks. */
export function headOf(file) {
  const lines = readFileSync(file, "utf8").split("\n");
  const end = lines.findIndex((line) => !line.startsWith("//"));
  return lines.slice(0, end).map((line) => line.replace(/^\/\/ ?/, ""));
}

/** parseArgs goes on with advice that fits no script here. */
const told = ({ code, message }) =>
  code?.startsWith("ERR_PARSE_ARGS") ? message.split(". ")[0] : message;

/**
 * What `read` makes of the arguments of a script, whose address is `url`. Ends the process for --help, and where
 * `read` throws.
 */
export async function commandLine(url, read) {
  const args = process.argv.slice(2);
  if (args.some((arg) => arg === "--help" || arg === "-h")) {
    console.log(headOf(new URL(url)).join("\n"));
    process.exit(0);
  }
  try {
    return await read(args);
  } catch (error) {
    console.error(`heed: ${told(error)}`);
    process.exit(2);
  }
}

/** Throws for what is not among `known`; `what` names it in the message. */
export function refuseUnknown(what, given, known) {
  const unknown = given.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new Error(`no ${what} "${unknown}"; there are: ${known.join(", ")}`);
  }
}

/** The whole number that the text of an option is. */
export function wholeNumber(option, text, least, most = Number.MAX_SAFE_INTEGER) {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  const range =
    most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new Error(`${option}: "${text}" is not a whole number ${range}`);
}

export const portOf = (text) => wholeNumber("--port", text, 0, 65535);
