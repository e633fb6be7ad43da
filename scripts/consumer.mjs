// Installs the library and builds tests/consumer against it, as a stranger's project would.
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { capture, run, which } from "./process.mjs";
import { root } from "./toolchain.mjs";

export async function checkConsumer(tools) {
  const prefix = join(root, "build/prefix");
  const binary = join(root, "build/consumer");
  const source = join(root, "tests/consumer");
  rmSync(prefix, { recursive: true, force: true });
  rmSync(binary, { recursive: true, force: true });
  const options = { cwd: root, env: tools.env };
  await run("cmake", ["--install", "build/native", "--prefix", prefix], {
    ...options,
    quiet: true,
  });

  const configure = ["-S", source, "-B", binary, "-G", "Ninja", `-DCMAKE_PREFIX_PATH=${prefix}`];
  await run("cmake", configure, { ...options, quiet: true });
  await run("cmake", ["--build", binary], options);
  await run(join(binary, "consumer"), [], options);
  await checkPkgConfig(prefix, binary, source, options);
}

async function checkPkgConfig(prefix, binary, source, options) {
  if (!which("pkg-config")) {
    console.log("pkg-config is not here: heed.pc stays untested");
    return;
  }
  const folders = ["lib", "lib64"].map((name) => join(prefix, name, "pkgconfig"));
  const triplet = capture("gcc", ["-print-multiarch"]);
  if (triplet) folders.push(join(prefix, "lib", triplet, "pkgconfig"));
  const env = { ...options.env, PKG_CONFIG_PATH: folders.join(":") };
  const flags = capture("pkg-config", ["--static", "--cflags", "--libs", "heed"], { env });
  if (!flags) throw new Error("pkg-config does not find heed in its install prefix");
  mkdirSync(binary, { recursive: true });
  const program = join(binary, "consumer-pkg-config");
  const compile = ["-std=c++20", join(source, "main.cc"), "-o", program, ...flags.split(/\s+/)];
  await run(process.env.CXX ?? "c++", compile, options);
  await run(program, [], options);
}
