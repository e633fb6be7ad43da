// Which row of a relative table belongs to a pair, and the terms that tables add to a score.
#ifndef HEED_REFERENCE_RELATIVE_H_
#define HEED_REFERENCE_RELATIVE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "inputs.h"
#include "visibility.h"

namespace heed::reference {

// The relative terms of a dot product, and values by distance, as far as the request has them.
class Relative {
 public:
  Relative(const Request& request, const Qkv& qkv);

  // What the tables add to q.k, before the scale.
  double Term(int64_t b, int64_t h, int64_t i, int64_t j) const;

  // The row of the tables that the distance between query i and key j has.
  int64_t Row(int64_t b, int64_t i, int64_t j) const;

  // Element d of what this row of the table adds to a value; 0 without a table.
  double Value(int64_t h, int64_t row, int64_t d) const;

  bool has_terms() const { return keys_ || queries_ || content_bias_; }
  bool has_values() const { return values_.has_value(); }

  // How many tables queries and keys meet: DeBERTa's default scale counts them.
  int num_terms() const { return (keys_ ? 1 : 0) + (queries_ ? 1 : 0); }
  const std::string& rows_word() const { return rows_word_; }

 private:
  std::optional<Array> ReadTable(const Request& request, const char* name, int64_t dim);

  const Qkv& qkv_;
  Visibility visible_;
  std::string rows_word_;
  int64_t num_rows_ = 0;
  int64_t max_distance_ = 512;
  std::optional<Array> keys_, queries_, values_, content_bias_, position_bias_;
};

}  // namespace heed::reference

#endif  // HEED_REFERENCE_RELATIVE_H_
