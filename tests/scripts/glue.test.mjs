// Glue is minified as strict code, and may run as sloppy code.
import assert from "node:assert/strict";
import { test } from "node:test";
import vm from "node:vm";
import { minify, parseAst } from "vite";
import {
  withCaughtFailures,
  withGivenThreads,
  withoutBlockFunctions,
  withSharedFile,
} from "../../scripts/glue.mjs";

const SOURCE = `
var factory = ((address) => {
  return (threaded) => {
    var folder = address.startsWith("a") ? "yes" : "no";
    if (threaded) {
      function print(...words) { return words.join("{") }
      self.print = print;
      if (folder) { function alarm(text) { return text } self.alarm = alarm }
    }
    return folder + outer();
    function outer() { return "!" }
  };
});
self.factory = factory;`;

test("WithoutBlockFunctionsMeansTheSame", () => {
  const text = withoutBlockFunctions(SOURCE, parseAst);
  assert.match(text, /var print=function\(\.\.\.words\) \{ return words\.join\("\{"\) \};/);
  assert.match(text, /var alarm=function\(text\)/);
  assert.match(text, /function outer\(\)/, "a function's own functions stay");
});

test("MinifiedGlueRunsInAClassicScript", async () => {
  const { code } = await minify("glue.mjs", withoutBlockFunctions(SOURCE, parseAst), {
    module: true,
  });
  const self = {};
  vm.runInNewContext(code, { self });
  assert.equal(self.factory("about")(true), "yes!");
  assert.equal(self.print(1, 2), "1{2");
  assert.equal(self.alarm("x"), "x");
});

test("TheGlueNamesNoWorkerOfItsOwn", () => {
  const worker = 'new Worker(new URL("heed-simd-threads.mjs",import.meta.url),workerOptions)';
  assert.equal(withGivenThreads(`worker=${worker};`), 'worker=Module["newThread"]();');
  assert.throws(() => withGivenThreads("worker=1"), /starts a worker: found 0 times/);
  assert.throws(() => withGivenThreads(worker + worker), /found 2 times/);
});

test("WhatAWorkerFailsOfIsAskedAboutBeforeItIsThrown", () => {
  const glue = (after) => `worker.onerror=e=>{err(e.message);throw e};${after}`;
  for (const after of ["var handlers=[]", 'if(ENVIRONMENT_IS_NODE){worker.on("message")}']) {
    const asked = glue(after).replace("throw e", 'if(!Module["threadFailed"]?.(e))throw e');
    assert.equal(withCaughtFailures(glue(after)), asked);
  }
  assert.throws(() => withCaughtFailures("throw e}"), /failed of: found 0 times/);
});

test("TheGlueOfNodeNamesTheFileOfTheWeb", () => {
  const address = (name) => `return new URL("${name}",import.meta.url).href`;
  assert.equal(withSharedFile(address("heed-simd.node.wasm")), address("heed-simd.wasm"));
  assert.throws(() => withSharedFile(address("heed-simd.wasm")), /found 0 times/);
});
