// ldmatrix, and mma.sync of m16n8k16 and m16n8k8. Who holds which element is as the PTX ISA says in
// "Matrix Fragments for mma.m16n8k16" and "... mma.m16n8k8".
#include <cstring>

#include "block.h"
#include "element_wise.h"
#include "tensor_core.h"

namespace heed::interpreter {
namespace {

template <bool kTransposed>
void LoadMatrices(Warp& warp, const Instruction& i, Lanes) {
  const size_t count = i.more.size();
  std::array<std::array<uint16_t, 64>, 4> matrices;
  for (size_t m = 0; m < count; ++m) {
    for (size_t row = 0; row < 8; ++row) {
      const int lane = static_cast<int>(8 * m + row);
      const uint64_t address = warp.AddressOf(i, lane);
      std::memcpy(&matrices[m][8 * row], warp.Shared(address, 16, lane), 16);
      warp.block().SeeRead(warp, address, 16);
    }
  }
  for (size_t m = 0; m < count; ++m) {
    uint32_t* const to = warp.At<uint32_t>(i.more[m]);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const size_t row = lane / 4, col = 2 * (lane % 4);
      const auto at = [&](size_t c) { return kTransposed ? 8 * c + row : 8 * row + c; };
      to[lane] = matrices[m][at(col)] | static_cast<uint32_t>(matrices[m][at(col + 1)]) << 16;
    }
  }
}

bool DecodeLoadMatrix(Decoder& decoder, const Operation& o, Instruction& i) {
  Allow(o, {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"});
  if (o.type() != "b16" || !o.Has("m8n8") || !(o.Has("shared") || o.Has("shared::cta"))) {
    Fail("this ldmatrix");
  }
  for (const std::string_view element : decoder.Elements(o.operands.at(0))) {
    i.more.push_back(decoder.DestinationOf(element, 4).at);
  }
  if (i.more.size() != (o.Has("x4") ? 4u : o.Has("x2") ? 2u : 1u)) Fail("matrices");
  const Address address = decoder.AddressOf(o.operands.at(1));
  i.a = address.place.at;
  i.width_a = static_cast<uint8_t>(address.place.width);
  i.imm = address.offset;
  i.kind = Kind::kAligned;
  i.run = o.Has("trans") ? LoadMatrices<true> : LoadMatrices<false>;
  return true;
}

// more: four registers of c (also d), of a, of b, of the sums before.
struct Fragments {
  float a[16][16], b[8][16];  // b by columns
};

using Widen = float (*)(uint16_t);
template <Widen kWiden>
void LoadHalves(Warp& warp, const Instruction& i, Fragments& f) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, place = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const uint32_t pair = warp.At<uint32_t>(i.more[static_cast<size_t>(4 + r)])[lane];
      float* const row = f.a[group + 8 * (r % 2)] + 2 * place + 8 * (r / 2);
      row[0] = kWiden(static_cast<uint16_t>(pair));
      row[1] = kWiden(static_cast<uint16_t>(pair >> 16));
    }
    for (int r = 0; r < 2; ++r) {
      const uint32_t pair = warp.At<uint32_t>(i.more[static_cast<size_t>(8 + r)])[lane];
      float* const column = f.b[group] + 2 * place + 8 * r;
      column[0] = kWiden(static_cast<uint16_t>(pair));
      column[1] = kWiden(static_cast<uint16_t>(pair >> 16));
    }
  }
}

float Tf32(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }
void LoadTf32(Warp& warp, const Instruction& i, Fragments& f) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, place = lane % 4;
    for (int r = 0; r < 4; ++r) {
      f.a[group + 8 * (r % 2)][place + 4 * (r / 2)] =
          Tf32(warp.At<uint32_t>(i.more[static_cast<size_t>(4 + r)])[lane]);
    }
    for (int r = 0; r < 2; ++r) {
      f.b[group][place + 4 * r] = Tf32(warp.At<uint32_t>(i.more[static_cast<size_t>(8 + r)])[lane]);
    }
  }
}

// Tensor cores of sm_80 add eight products of 16 bits at once, or four of TF32.
template <auto kLoad, int kDepth>
void Multiply(Warp& warp, const Instruction& i, Lanes) {
  Fragments f;
  kLoad(warp, i, f);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const int row = lane / 4 + 8 * (r / 2), col = 2 * (lane % 4) + r % 2;
      const float before = warp.At<float>(i.more[static_cast<size_t>(10 + r)])[lane];
      warp.At<float>(i.more[static_cast<size_t>(r)])[lane] =
          SumOfProducts(before, f.a[row], f.b[col], kDepth, kDepth / 2);
    }
  }
}

bool DecodeMultiply(Decoder& decoder, const Operation& o, Instruction& i) {
  for (const std::string_view operand : o.operands) {
    for (const std::string_view element : decoder.Elements(operand)) {
      i.more.push_back(decoder.Source(element, 4).at);
    }
  }
  if (i.more.size() != 14) Fail("operands of mma");
  i.kind = Kind::kAligned;
  if (o.opcode == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") {
    i.run = Multiply<LoadHalves<HalfToFloat>, 16>;
  } else if (o.opcode == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
    i.run = Multiply<LoadHalves<BFloatToFloat>, 16>;
  } else if (o.opcode == "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") {
    i.run = Multiply<LoadTf32, 8>;
  } else {
    Fail("this mma");
  }
  return true;
}

}  // namespace

bool DecodeMatrix(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name == "ldmatrix") return DecodeLoadMatrix(decoder, o, i);
  if (o.name == "mma") return DecodeMultiply(decoder, o, i);
  return false;
}

}  // namespace heed::interpreter
