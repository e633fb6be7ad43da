// Installs the library and uses it as strangers' projects would: find_package, pkg-config, shared,
// as a subproject, and the examples.
//   node scripts/consumer.mjs
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cmakeProjects, writePrograms } from "./docs_examples.mjs";
import { capture, run, which } from "./process.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

const build = (name) => join(root, "build", `consumer-${name}`);

// A configured and built project; `definitions` as CMake takes them.
async function buildProject({ env }, source, name, definitions = []) {
  const binary = build(name);
  const configure = ["-S", join(root, source), "-B", binary, "-G", "Ninja", ...definitions];
  await run("cmake", configure, { cwd: root, env, quiet: true });
  await run("cmake", ["--build", binary], { cwd: root, env, quiet: true });
  return binary;
}

// The options that make the objects of a build those of the native tests.
const ofTests = ({ ccache, highway }) => [
  `-DCMAKE_CXX_COMPILER_LAUNCHER=${ccache}`,
  ...(highway ? [`-DFETCHCONTENT_SOURCE_DIR_HIGHWAY=${highway}`] : []),
  "-DHEED_ALL_TARGETS=ON",
  "-DHEED_WERROR=ON",
];

// An installed prefix may be moved: what is tested does not lie where it was installed.
async function install({ env }, from = "build/native") {
  for (const name of readdirSync(join(root, "build"))) {
    if (name.startsWith("consumer")) rmSync(join(root, "build", name), { recursive: true });
  }
  await run("cmake", ["--install", from, "--prefix", build("installed")], {
    cwd: root,
    env,
    quiet: true,
  });
  renameSync(build("installed"), build("prefix"));
  return build("prefix");
}

async function checkFindPackage(tools, prefix) {
  const where = `-DCMAKE_PREFIX_PATH=${prefix}`;
  const binary = await buildProject(tools, "tests/consumer", "find-package", [where]);
  for (const name of ["consumer", "consumer_training"]) {
    await run(join(binary, name), [], { cwd: root, env: tools.env });
  }

  const source = join(root, "tests/consumer");
  const newer = ["-S", source, "-B", build("newer"), "-G", "Ninja", where, "-DHEED_WANTED=0.2"];
  if (capture("cmake", newer, { env: tools.env }) !== null) {
    throw new Error("find_package(heed 0.2) accepted an older heed");
  }
}

async function checkDocs(tools, prefix) {
  const programs = build("docs-programs");
  const count = writePrograms(programs);
  const binary = await buildProject(tools, "tests/docs", "docs", [
    `-DCMAKE_PREFIX_PATH=${prefix}`,
    `-DHEED_DOCS_PROGRAMS=${programs}`,
  ]);
  const options = ["--test-dir", binary, "--output-on-failure", "--no-tests=error"];
  await run("ctest", options, { cwd: root, env: tools.env, quiet: true });
  console.log(`${count} C++ examples of the docs run as they are written`);
}

// What the README and docs/setup.md tell to write into a CMakeLists.txt. The way through heed's sources
// is only configured: checkSubproject() builds it.
async function checkCMakeExamples({ env, highway }, prefix) {
  const projects = ["README.md", "docs/setup.md"].flatMap((page) => cmakeProjects(page, root));
  for (const [i, text] of projects.entries()) {
    const source = build(`docs-cmake-${i}`);
    mkdirSync(source, { recursive: true });
    writeFileSync(join(source, "CMakeLists.txt"), text);
    cpSync(join(root, "tests/consumer/main.cc"), join(source, "main.cc"));
    const found = highway ? [`-DFETCHCONTENT_SOURCE_DIR_HIGHWAY=${highway}`] : [];
    const where = [`-DCMAKE_PREFIX_PATH=${prefix}`, ...found];
    const configure = ["-S", source, "-B", join(source, "build"), "-G", "Ninja", ...where];
    await run("cmake", configure, { cwd: root, env, quiet: true });
    if (text.includes("FetchContent")) continue;
    await run("cmake", ["--build", join(source, "build")], { cwd: root, env, quiet: true });
    await run(join(source, "build/your_program"), [], { cwd: root, env, quiet: true });
  }
  console.log(`${projects.length} CMake examples of the docs work as they are written`);
}

async function checkExamples(tools, prefix, hasShared) {
  for (const shared of hasShared ? ["OFF", "ON"] : ["OFF"]) {
    const binary = await buildProject(tools, "examples", `examples-${shared}`, [
      `-DCMAKE_PREFIX_PATH=${prefix}`,
      `-DHEED_EXAMPLES_SHARED=${shared}`,
    ]);
    await run("ctest", ["--test-dir", binary, "--output-on-failure"], {
      cwd: root,
      env: tools.env,
      quiet: true,
    });
  }
}

// What a shared library shows that is not heed's own interface.
export function strangeSymbols(listing) {
  const shown = listing.split("\n").map((line) => line.replace(/^\w*\s+\w\s/, ""));
  return shown.filter(
    (symbol) => symbol !== "" && !/^((typeinfo|vtable)( name)? for )?heed::(?!N_)/.test(symbol),
  );
}

function checkSymbols(prefix) {
  const file = capture("find", [prefix, "-name", "libheed.so"]);
  if (!which("nm") || !file) {
    console.log("nm or a shared library is not here: its symbols stay unchecked");
    return false;
  }
  const listing = capture("nm", ["-DC", "--defined-only", file]) ?? "";
  for (const name of ["heed::Attention(", "heed::AttentionBackward(", "heed::Decode("]) {
    if (!listing.includes(` ${name}`)) throw new Error(`libheed.so does not show ${name}...)`);
  }
  const strange = strangeSymbols(listing);
  if (strange.length > 0) {
    throw new Error(`libheed.so shows ${strange.length} foreign symbols: ${strange[0]}, ...`);
  }
  console.log(`libheed.so shows ${listing.split("\n").length} symbols, all of heed`);
  return true;
}

const compiler = () => process.env.CXX ?? "c++";

async function checkPkgConfig({ env }, prefix, hasShared) {
  if (!which("pkg-config")) {
    console.log("pkg-config is not here: heed.pc stays untested");
    return;
  }
  const triplet = capture(compiler(), ["-print-multiarch"]) ?? "";
  const folders = ["lib", "lib64", `lib/${triplet}`].map((name) => join(prefix, name));
  const found = { ...env, PKG_CONFIG_PATH: folders.map((at) => join(at, "pkgconfig")).join(":") };
  const ask = (...args) => capture("pkg-config", args, { env: found });
  const version = ask("--modversion", "heed");
  if (!version?.startsWith("0.1.")) throw new Error(`pkg-config says that heed is ${version}`);
  const cuda = ask("--variable=cuda", "heed");
  if (!["ON", "OFF"].includes(cuda)) throw new Error(`pkg-config says of CUDA: ${cuda}`);
  const programs = [["heed", "main.cc", "--static"]];
  if (hasShared) programs.push(["heed", "main.cc", "--shared"]);
  else programs.push(["heed-training", "training.cc", "--static"]);
  for (const [name, source, kind] of programs) {
    const flags = ask(kind, "--cflags", "--libs", name);
    if (!flags) throw new Error(`pkg-config does not find ${name} in its install prefix`);
    const program = build(`pkg-config-${name}${kind}`);
    const rest = [...flags.split(/\s+/), ...folders.map((at) => `-Wl,-rpath,${at}`)];
    if (kind === "--static")
      rest.unshift("-Wl,-Bstatic", `-l${name.replace("-", "_")}`, "-Wl,-Bdynamic");
    const compile = ["-std=c++20", join(root, "tests/consumer", source), "-o", program];
    await run(compiler(), [...compile, ...folders.map((at) => `-L${at}`), ...rest], { cwd: root });
    await run(program, [], { cwd: root });
  }
}

// The objects are those of the native tests: with ccache this takes seconds, without it minutes. It
// finds them from a folder as deep as theirs, where paths relative to it are the same.
async function checkSubproject(tools) {
  if (!tools.ccache) {
    console.log("ccache is not here: heed as a subproject stays untested");
    return;
  }
  const binary = await buildProject(tools, "tests/consumer/subproject", "subproject", [
    ...ofTests(tools),
    "-DCMAKE_CXX_FLAGS=-O3 -DNDEBUG",
  ]);
  await run(join(binary, "consumer"), [], { cwd: root, env: tools.env });
  await run("cmake", ["--install", binary, "--prefix", build("of-subproject")], {
    cwd: root,
    env: tools.env,
    quiet: true,
  });
  const installed = readdirSync(build("of-subproject"));
  if (installed.join() !== "bin") throw new Error(`a subproject installs heed's ${installed}`);
}

// Programs of shared libraries alone. One that names only heed_training leaves libheed to be found by
// that library, where it is installed. The objects are those of the native tests, as above.
async function checkSharedLibraries(tools) {
  if (!tools.ccache) {
    console.log("ccache is not here: shared libraries alone stay untested");
    return;
  }
  const options = [...ofTests(tools), "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_TYPE=Release"];
  const prefix = build("shared-prefix");
  const binary = await buildProject(tools, ".", "shared", options);
  const install = ["--install", binary, "--prefix", prefix];
  await run("cmake", install, { cwd: root, env: tools.env, quiet: true });
  const using = await buildProject(tools, "tests/consumer", "of-shared", [
    `-DCMAKE_PREFIX_PATH=${prefix}`,
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed",
  ]);
  for (const name of ["consumer", "consumer_training"]) {
    await run(join(using, name), [], { cwd: root, env: tools.env });
  }
}

// What it is licensed under comes with it.
function checkLicenses(prefix) {
  for (const name of ["LICENSE", "NOTICE"]) {
    if (!existsSync(join(prefix, "share/doc/heed", name)))
      throw new Error(`${name} is not installed`);
  }
}

export async function checkConsumer(tools, from) {
  const prefix = await install(tools, from);
  checkLicenses(prefix);
  const hasShared = checkSymbols(prefix);
  await checkFindPackage(tools, prefix);
  await checkExamples(tools, prefix, hasShared);
  await checkDocs(tools, prefix);
  await checkCMakeExamples(tools, prefix);
  await checkPkgConfig(tools, prefix, hasShared);
  await checkSubproject(tools);
  await checkSharedLibraries(tools);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main(() => checkConsumer(toolchain(), process.argv[2]));
}
