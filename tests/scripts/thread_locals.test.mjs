// Objects with variables of threads are found, but where only modules with threads take them.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { sharedThreadLocals } from "../../scripts/thread_locals.mjs";

test("OnlyObjectsOfThreadsAloneMayHaveVariablesOfEachThread", () => {
  const folder = mkdtempSync(join(tmpdir(), "heed-objects-"));
  const put = (name, symbol) => {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), `\0asm env ${symbol} \0`);
    return name;
  };
  try {
    const right = [
      put("simd_shared_objects.dir/gemm.cc.o", "__stack_pointer"),
      put("core-simd-threads_face_objects.dir/heed_embind.cc.o", "__tls_base"),
      put("parallel-threads_objects.dir/dry_run.cc.o", "__tls_base"),
    ];
    assert.deepEqual(sharedThreadLocals(folder, right), []);
    const wrong = put("simd_shared_objects.dir/cache.cc.o", "__tls_base");
    assert.deepEqual(sharedThreadLocals(folder, [...right, wrong]), [wrong]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
