# cmake -DGLUE=heed-simd-threads.mjs -P inline_worker_options.cmake
#
# Emscripten 3.1.69 passes a variable as the options of `new Worker(new URL(...), options)`. Bundlers
# read that line to find the worker's file, and Vite refuses one whose options are not written out.
file(READ "${GLUE}" text)
set(options "{type:\"module\",name:\"em-pthread\"}")
string(REPLACE "import.meta.url),workerOptions)" "import.meta.url),${options})" inlined "${text}")
string(FIND "${inlined}" "import.meta.url),${options})" found)
if(found EQUAL -1)
  message(FATAL_ERROR "${GLUE}: this Emscripten starts its workers in a way that is not known here")
endif()
if(NOT inlined STREQUAL text)
  file(WRITE "${GLUE}" "${inlined}")
endif()
