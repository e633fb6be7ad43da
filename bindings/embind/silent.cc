// The library prints nothing, but what it stands on could: run-time libraries print before they
// abort. Formatted output that goes nowhere keeps printf, with its decimal arithmetic, out of every
// download; a trap still shows its stack.
#include <cstdarg>
#include <cstdio>

extern "C" {

int vfprintf(std::FILE*, const char*, std::va_list) { return 0; }
int vfiprintf(std::FILE*, const char*, std::va_list) { return 0; }
int __small_vfprintf(std::FILE*, const char*, std::va_list) { return 0; }
int vsnprintf(char* to, size_t size, const char*, std::va_list) {
  if (size > 0) *to = '\0';
  return 0;
}
int vsniprintf(char* to, size_t size, const char* format, std::va_list args) {
  return vsnprintf(to, size, format, args);
}

}  // extern "C"
