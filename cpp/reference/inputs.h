// How a mechanism of the oracle reads its request: tensors and parameters by name, as doubles.
#ifndef HEED_REFERENCE_INPUTS_H_
#define HEED_REFERENCE_INPUTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/reference.h"
#include "heed/request.h"

namespace heed::reference {

// A tensor copied into contiguous doubles. Extents of 1 broadcast when an element is read.
struct Array {
  Extents shape{1, 1, 1, 1};
  std::vector<double> values;

  double operator()(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return values[((Index(0, b) * shape[1] + Index(1, h)) * shape[2] + Index(2, i)) * shape[3] +
                  Index(3, d)];
  }

  // The last dimension at [b, h, i]; nothing broadcasts.
  std::span<const double> Row(int64_t b, int64_t h, int64_t i) const {
    const int64_t start = ((b * shape[1] + h) * shape[2] + i) * shape[3];
    return std::span(values).subspan(start, shape[3]);
  }

 private:
  int64_t Index(int axis, int64_t index) const { return shape[axis] == 1 ? 0 : index; }
};

// The three tensors of every mechanism of the exact family, and the sizes they agree on.
struct Qkv {
  Array q;  // [batch, num_heads, q_len, head_dim]
  Array k;  // [batch, num_kv_heads, kv_len, head_dim], or of its own width with KeyWidth::kFree
  Array v;  // [batch, num_kv_heads, kv_len, head_dim_v]
  int64_t batch = 0, num_heads = 0, num_kv_heads = 0;
  int64_t q_len = 0, kv_len = 0, head_dim = 0, head_dim_v = 0;

  // Query heads are grouped: consecutive ones share a KV head.
  int64_t KvHead(int64_t h) const { return h / (num_heads / num_kv_heads); }
};

// Throws Error(kOption) when a name of the request is not in the lists or appears twice, or when an
// input without '?' is missing. The lists are words separated by spaces, as in mechanisms.inc.
void CheckNames(const Request& request, std::string_view inputs, std::string_view params);

// The tensor with this name, or nullptr.
const AnyTensor* FindInput(const Request& request, std::string_view name);

// Whether keys are as wide as queries, or a score joins two widths.
enum class KeyWidth { kAsQueries, kFree };

// kFree where the request's score joins two widths.
KeyWidth WidthOfScore(const Request& request);

// Reads and checks q, v and the input that keys are made of.
Qkv ReadQkv(const Request& request, KeyWidth key_width = KeyWidth::kAsQueries,
            std::string_view keys = "k");

// A float tensor of any rank; its extents become the last ones of the array. The request has it.
Array ReadArray(const Request& request, std::string_view name);

// Reads a float tensor whose extents are 1 or those of [batch, num_heads, q_len, kv_len]; rank 4,
// or rank 2 for [q_len, kv_len]. Absent when the request does not have it. `dtype` kUint8 reads a
// byte tensor, anything else a float32 or float64 one.
std::optional<Array> ReadPairs(const Request& request, std::string_view name, const Qkv& qkv,
                               DType dtype);

// Reads a float tensor of this rank with leading extents of 1: [n, m] becomes [1, 1, n, m]. Absent
// when the request does not have it.
std::optional<Array> ReadFloats(const Request& request, std::string_view name, int rank);
// Reads a float tensor that the request has, of any rank; its extents become the last ones.
Array ReadFloats(const Request& request, std::string_view name);
// Reads a byte tensor of any rank; its extents become the last ones. Absent when the request does
// not have it.
std::optional<Array> ReadBytes(const Request& request, std::string_view name);

// Reads a float tensor of rank 0 or 1; empty when the request does not have it.
std::vector<double> ReadList(const Request& request, std::string_view name);

// Reads an integer tensor of rank 1 or 2 with its shape in the last two extents: [n] becomes
// [1, 1, n, 1], [n, m] becomes [1, 1, n, m].
std::optional<Array> ReadIntegers(const Request& request, std::string_view name);

// Parameters: a flag (false when absent), a finite number, an integer >= 0, one of some words.
bool ReadFlag(const Request& request, std::string_view name);
std::optional<double> ReadNumber(const Request& request, std::string_view name);
std::optional<int64_t> ReadCount(const Request& request, std::string_view name);
std::optional<std::string> ReadWord(const Request& request, std::string_view name,
                                    const std::vector<std::string>& allowed);
// The parameter as it came, or nullptr.
const ParamValue* FindParam(const Request& request, std::string_view name);

// The number as an integer; Error(kRange) unless it is whole and exactly representable.
int64_t WholeNumber(double number, std::string_view name);

// "name [2, 3, 4]": how messages show a tensor.
std::string Describe(std::string_view name, const AnyTensor& tensor);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_INPUTS_H_
