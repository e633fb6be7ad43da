// A state in plain memory, row by row: what rules that go back token by token do to it, compiled
// for every SIMD target.
#ifndef HEED_SRC_RECURRENT_STATE_ROWS_H_
#define HEED_SRC_RECURRENT_STATE_ROWS_H_

#include <cstdint>
#include <span>

namespace heed {

// [count, width], dense.
template <class T>
struct StateRows {
  T* data;
  int64_t count, width;
};

// sum[e] = sum of factors[c] rows[c][e].
void SumRows(const StateRows<const float>& rows, const float* factors, float* sum);

// dots[c] = sum of rows[c][e] other[c * other_stride + e]: with a stride of 0 all rows meet one.
void MeetRows(const StateRows<const float>& rows, const float* other, int64_t other_stride,
              float* dots);

// rows[c][e] += factors[c] other[e].
void AddOuter(const float* factors, const float* other, const StateRows<float>& rows);

// The product of a column and a row, [count] and [width].
struct Outer {
  const float *factors, *other;
};

// to[c][e] = decays[c] from[c][e] + products, one or two. What a decay of 0 meets is forgotten,
// whatever it was. `to` is as large as `from`, and may be it.
void StepRows(const StateRows<const float>& from, const float* decays,
              std::span<const Outer> products, float* to);

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_STATE_ROWS_H_
