// Handlers of instructions that each lane does by itself.
#ifndef HEED_TESTS_CUDA_INTERPRETER_ELEMENT_WISE_H_
#define HEED_TESTS_CUDA_INTERPRETER_ELEMENT_WISE_H_

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "decoder.h"
#include "types.h"
#include "warp.h"

namespace heed::interpreter {

template <auto F, class D, class A = D>
void Unary(Warp& warp, const Instruction& i, Lanes lanes) {
  D* const d = warp.At<D>(i.d);
  const A* const a = warp.At<A>(i.a);
  ForLanes(lanes, [=](int lane) { d[lane] = static_cast<D>(F(a[lane])); });
}
template <auto F, class D, class A = D, class B = A>
void Binary(Warp& warp, const Instruction& i, Lanes lanes) {
  D* const d = warp.At<D>(i.d);
  const A* const a = warp.At<A>(i.a);
  const B* const b = warp.At<B>(i.b);
  ForLanes(lanes, [=](int lane) { d[lane] = static_cast<D>(F(a[lane], b[lane])); });
}
template <auto F, class D, class A = D, class C = D>
void Ternary(Warp& warp, const Instruction& i, Lanes lanes) {
  D* const d = warp.At<D>(i.d);
  const A* const a = warp.At<A>(i.a);
  const A* const b = warp.At<A>(i.b);
  const C* const c = warp.At<C>(i.c);
  ForLanes(lanes, [=](int lane) { d[lane] = static_cast<D>(F(a[lane], b[lane], c[lane])); });
}

// Registers of d, a, b, c, of these widths; the later ones may be missing.
inline void Operands(Decoder& decoder, const Operation& operation, Instruction& i, int d, int a,
                     int b = -1, int c = -1) {
  const size_t count = 2 + (b >= 0) + (c >= 0);
  if (operation.operands.size() != count) Fail("operands");
  i.d = decoder.DestinationOf(operation.operands[0], d).at;
  i.a = decoder.Source(operation.operands[1], a).at;
  if (b >= 0) i.b = decoder.Source(operation.operands[2], b).at;
  if (c >= 0) i.c = decoder.Source(operation.operands[3], c).at;
}

// Modifiers but for those that are known: a loud failure.
inline void Allow(const Operation& operation, std::initializer_list<std::string_view> known) {
  for (size_t n = 0; n + 1 < operation.words.size(); ++n) {
    if (std::find(known.begin(), known.end(), operation.words[n]) == known.end()) {
      Fail("unknown modifier " + std::string(operation.words[n]));
    }
  }
}

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_ELEMENT_WISE_H_
