// heed-bench: accuracy first, speed second. See README.md in this folder.
#include "native_bench/program.h"

int main(int argc, char** argv) { return heed::bench::RunProgram(argc, argv); }
