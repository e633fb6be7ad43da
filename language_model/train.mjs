// npm run train:language: learns a tokenizer and a language model from a text, and writes what the
// site needs to run the model and to say what it is.
//   npm run train:language                 the King James Bible, into web/language_model
//   npm run train:language -- --text FILE --out FOLDER [--steps N] [--threads N] [--program FILE]
// --program: a heed-language-model that is already built.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { buildNative } from "../scripts/build.mjs";
import { commandLine, typedPath, wholeNumber } from "../scripts/command_line.mjs";
import { setup } from "../scripts/setup.mjs";
import { main, step } from "../scripts/steps.mjs";
import { root, toolchain } from "../scripts/toolchain.mjs";
import { learnBpe, makeEncoder, tokenizerJson } from "./bpe.mjs";
import { divide, kingJamesBible, textFile } from "./corpus.mjs";
import { configJson, flagsOf, passageOf, RECIPE } from "./recipe.mjs";

/** Stands before every section, and ends what the model writes. */
const SECTION_MARK = "<|endoftext|>";

const options = {
  text: { type: "string" },
  out: { type: "string", default: join(root, "web/language_model") },
  steps: { type: "string", default: String(RECIPE.steps) },
  program: { type: "string" },
  threads: { type: "string", default: String(availableParallelism()) },
};

const given = await commandLine(import.meta.url, (args) => {
  const { values } = parseArgs({ args, options });
  for (const name of ["steps", "threads"]) wholeNumber(`--${name}`, values[name], 1);
  for (const name of ["text", "program"]) {
    if (values[name] === undefined || existsSync(typedPath(values[name]))) continue;
    throw new Error(`--${name}: there is no ${values[name]}`);
  }
  return values;
});

/** Writes the ids of all sections as the program reads them; returns the sizes of the text. */
function writeIds(path, idsOf, sections) {
  const ids = sections.flatMap(({ text }) => idsOf(text));
  writeFileSync(path, new Uint8Array(Uint16Array.from(ids).buffer));
  const bytes = sections.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
  return { sections: sections.length, bytes, tokens: ids.length };
}

/** The text as ids, in files below `folder`. */
function tokenize({ sections }, folder) {
  const { every, train, heldOut } = divide(sections);
  const texts = train.map(({ text }) => text);
  const bpe = learnBpe(texts, RECIPE.vocabulary, SECTION_MARK);
  const encode = makeEncoder(bpe);
  const mark = bpe.vocab.get(SECTION_MARK);
  const idsOf = (text) => [mark, ...encode(text)];
  const files = { train: join(folder, "train.ids"), heldOut: join(folder, "held_out.ids") };
  return {
    bpe,
    mark,
    files,
    passage: passageOf(heldOut[0], idsOf, RECIPE.context),
    train: writeIds(files.train, idsOf, train),
    heldOut: { every, ...writeIds(files.heldOut, idsOf, heldOut) },
  };
}

/** Runs the program; returns the objects that it prints, each shown when it comes. */
function runProgram(program, flags) {
  const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  const lines = [];
  createInterface(child.stdout).on("line", (line) => {
    console.log(line);
    lines.push(JSON.parse(line));
  });
  return new Promise((done, failed) => {
    child.on("error", failed);
    child.on("close", (status) => {
      if (status === 0) done(lines);
      else failed(new Error(`the training ended with status ${status}`));
    });
  });
}

async function buildProgram() {
  await setup();
  const tools = toolchain();
  await buildNative(tools, "native", ["heed-language-model"]);
  return join(root, "build/release/language_model/heed-language-model");
}

/** What was typed; where the program came from and on how many threads it ran change nothing. */
function commandGiven() {
  const chosen = ["text", "steps"].filter((name) =>
    process.argv.some((arg) => arg === `--${name}`),
  );
  const options = chosen.map((name) => ` --${name} ${given[name]}`).join("");
  return `npm run train:language${options && ` --${options}`}`;
}

/** What the page and the tests know of the model; every number is counted or measured here. */
function factsOf(text, tokens, steps, lines) {
  const { parameters, passageLoss, trainLoss, heldOutLoss } = lines.at(-1);
  const { bytes, tokens: heldOutTokens } = tokens.heldOut;
  return {
    command: commandGiven(),
    text: { name: text.name, source: text.source },
    train: tokens.train,
    heldOut: tokens.heldOut,
    model: {
      ...RECIPE.model,
      context: RECIPE.context,
      vocabulary: tokens.bpe.vocab.size,
      parameters,
    },
    training: {
      ...RECIPE.optimizer,
      steps,
      batch: RECIPE.batch,
      epochs: (steps * RECIPE.batch * RECIPE.context) / tokens.train.tokens,
      seed: RECIPE.seed,
    },
    result: {
      trainLoss,
      heldOutLoss,
      heldOutPerplexity: Math.exp(heldOutLoss),
      heldOutBitsPerByte: (heldOutLoss * heldOutTokens) / (bytes * Math.LN2),
    },
    passage: { ...tokens.passage, loss: passageLoss },
    curve: lines.slice(0, -1).map((line) => [line.step, line.loss, line.heldOutLoss]),
  };
}

function writeJson(folder, name, value) {
  writeFileSync(join(folder, name), `${JSON.stringify(value, null, 1)}\n`);
}

await main(async () => {
  const out = typedPath(given.out);
  const steps = Number(given.steps);
  const work = join(root, "build/language_model");
  for (const folder of [out, work]) mkdirSync(folder, { recursive: true });
  const text = given.text
    ? textFile(typedPath(given.text), given.text)
    : await kingJamesBible(toolchain().cache);
  const tokens = await step("Learn a tokenizer", async () => tokenize(text, work));
  writeJson(out, "tokenizer.json", tokenizerJson(tokens.bpe, SECTION_MARK));
  writeJson(out, "config.json", configJson(RECIPE, tokens.bpe.vocab.size, tokens.mark));
  const program = typedPath(given.program) ?? (await step("Build the program", buildProgram));
  const lines = await step(`Train for ${steps} steps`, () =>
    runProgram(program, {
      ...flagsOf(RECIPE, steps),
      vocabulary: tokens.bpe.vocab.size,
      train: tokens.files.train,
      "held-out": tokens.files.heldOut,
      passage: tokens.passage.tokens,
      weights: join(out, "model.safetensors"),
      threads: given.threads,
    }),
  );
  writeJson(out, "facts.json", factsOf(text, tokens, steps, lines));
});
