# cmake -DGLUE=<file.mjs> -P static_worker_options.cmake
# Emscripten's glue starts its workers as `new Worker(new URL(...), workerOptions)`. Bundlers read
# that expression without running it (Vite refuses to build otherwise), so the options are written
# out where they are used.
file(READ "${GLUE}" source)
string(REGEX MATCH "workerOptions=({[^}]*})" found "${source}")
if(found)
  string(REPLACE ",workerOptions)" ",${CMAKE_MATCH_1})" source "${source}")
  file(WRITE "${GLUE}" "${source}")
endif()
if(NOT source MATCHES "new Worker\\(new URL\\(\"[^\"]*\",import\\.meta\\.url\\),{")
  message(FATAL_ERROR "${GLUE}: no worker whose options a bundler can read")
endif()
