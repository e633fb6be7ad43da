#include "native_bench/interrupt.h"

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#endif

namespace heed::bench {

#if defined(__unix__) || defined(__APPLE__)
namespace {

struct Note {
  std::array<char, 500> text;
  size_t size = 0;
};

// An interrupt may come while a text is being written: it sees the one before.
std::array<Note, 2> notes;
std::atomic<const Note*> current = nullptr;

void SayAndEnd(int signal) {
  const Note* note = current.load();
  // Nothing can be done about a terminal that is gone.
  if (note != nullptr && write(STDERR_FILENO, note->text.data(), note->size) < 0) {
    note = nullptr;
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void SayWhenInterrupted(const std::string& text) {
  Note& next = current.load() == &notes[0] ? notes[1] : notes[0];
  next.size = std::min(text.size(), next.text.size());
  std::copy_n(text.begin(), next.size, next.text.begin());
  const bool first = current.exchange(&next) == nullptr;
  // What runs in the background of a shell is not interrupted, and stays so.
  if (first && std::signal(SIGINT, SayAndEnd) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
}
#else
void SayWhenInterrupted(const std::string&) {}
#endif

}  // namespace heed::bench
