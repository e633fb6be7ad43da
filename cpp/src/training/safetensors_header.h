// The JSON of a safetensors header: its grammar is small and fixed, and files are not trusted.
#ifndef HEED_SRC_TRAINING_SAFETENSORS_HEADER_H_
#define HEED_SRC_TRAINING_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heed::training {

struct HeaderEntry {
  std::string name, dtype;
  std::vector<int64_t> shape, offsets;
};

struct Header {
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Throws Error(kOption), saying at which byte.
Header ParseHeader(std::string_view text);

// A JSON string with its quotes. The text must be UTF-8.
std::string Quoted(std::string_view text);

}  // namespace heed::training

#endif  // HEED_SRC_TRAINING_SAFETENSORS_HEADER_H_
