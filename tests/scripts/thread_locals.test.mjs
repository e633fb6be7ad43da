// Objects with variables of threads are found, but where only modules with threads take them.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { refuseSharedThreadLocals, sharedThreadLocals } from "../../scripts/thread_locals.mjs";

test("OnlyObjectsOfThreadsAloneMayHaveVariablesOfEachThread", () => {
  const folder = mkdtempSync(join(tmpdir(), "heed-objects-"));
  const put = (target, name, text) => {
    mkdirSync(join(folder, `${target}_objects.dir`), { recursive: true });
    writeFileSync(join(folder, `${target}_objects.dir`, name), `\0asm env ${text} \0`);
  };
  try {
    put("simd_shared", "gemm.cc.o", "__stack_pointer");
    put("core-simd-threads_face", "heed_embind.cc.o", "__tls_base");
    put("parallel-threads", "dry_run.cc.o", "__tls_base");
    put("simd_shared", "notes.txt", "__tls_base");
    assert.deepEqual(sharedThreadLocals(folder), []);
    refuseSharedThreadLocals(folder);
    put("simd_shared", "cache.cc.o", "__tls_base");
    assert.deepEqual(sharedThreadLocals(folder), [join("simd_shared_objects.dir", "cache.cc.o")]);
    assert.throws(() => refuseSharedThreadLocals(folder), /cache\.cc\.o/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
