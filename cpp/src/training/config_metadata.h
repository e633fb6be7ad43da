// A model's configuration as the texts of a file's metadata.
#ifndef HEED_SRC_TRAINING_CONFIG_METADATA_H_
#define HEED_SRC_TRAINING_CONFIG_METADATA_H_

#include <map>
#include <string>

#include "heed/training/transformer.h"

namespace heed::training {

using Metadata = std::map<std::string, std::string>;

Metadata ToMetadata(const TransformerOptions& config);

// Throws Error(kOption) for a missing or an unknown key, or a text that is no value.
TransformerOptions FromMetadata(const Metadata& metadata);

}  // namespace heed::training

#endif  // HEED_SRC_TRAINING_CONFIG_METADATA_H_
