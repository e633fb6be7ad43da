// wgmma and setmaxnreg. A warp of the group makes its own 16 rows, with what the PTX ISA says in
// "Asynchronous wgmma.mma_async: matrix fragments" and "Shared memory matrix layout".
#include <cstring>
#include <memory>
#include <string>

#include "block.h"
#include "element_wise.h"
#include "tensor_core.h"

namespace heed::interpreter {
namespace {

constexpr int kMostColumns = 256;

// A matrix in shared memory (PTX ISA, "Matrix descriptor"), of 128-byte swizzle or of none.
//
// Swizzled: where its rows (m or n) are contiguous instead of k, 64 of them make a panel, and
// panels are `leading` bytes apart. Not swizzled: pieces of 8 rows and 16 bytes, the next along k
// `leading` bytes away, the next along rows `stride`.
struct Matrix {
  uint32_t begin, leading, stride;
  bool rows_contiguous, swizzled;

  Matrix(uint64_t descriptor, bool transposed)
      : begin(static_cast<uint32_t>(descriptor & 0x3fff) << 4),
        leading(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4),
        rows_contiguous(transposed),
        swizzled(descriptor >> 62 == 1) {
    if (!swizzled && descriptor >> 62 != 0) Fail("a matrix of a swizzle of 32 or 64 bytes");
    if (!swizzled && transposed) Fail("a transposed matrix without a swizzle");
    if ((descriptor >> 49 & 7) != 0) Fail("a base offset of a matrix");
  }
  uint32_t AddressOf(uint32_t row, uint32_t k, uint32_t width) const {
    if (!swizzled) {
      const uint32_t byte = k * width;
      return begin + row / 8 * stride + row % 8 * 16 + byte / 16 * leading + byte % 16;
    }
    const uint32_t linear = rows_contiguous ? begin + row / 64 * leading + k / 8 * stride +
                                                  k % 8 * 128 + row % 64 * width
                                            : begin + row / 8 * stride + row % 8 * 128 + k * width;
    return linear ^ (linear >> 7 & 7) << 4;
  }
};

struct Shape {
  uint32_t columns, depth, width;  // width: bytes of an element
  float (*widen)(uint32_t);
  bool is_float8;
};

// What the operands are, beside the registers of Instruction: c in `more`, then a's.
struct Product {
  Shape shape;
  bool a_in_registers, a_transposed, b_transposed;
};

float WidenHalf(uint32_t bits) { return HalfToFloat(static_cast<uint16_t>(bits)); }
float WidenBFloat(uint32_t bits) { return BFloatToFloat(static_cast<uint16_t>(bits)); }
float WidenE4M3(uint32_t bits) { return E4M3ToFloat(static_cast<uint8_t>(bits)); }

// The 16 bytes that begin with this element.
const char* ReadChunk(Warp& warp, const Matrix& matrix, const Shape& shape, uint32_t row,
                      uint32_t k) {
  const uint32_t address = matrix.AddressOf(row, k, shape.width);
  Block& block = warp.block();
  if (address % 16 != 0) Fail("wgmma of a matrix that is not aligned to 16 bytes");
  if (address < kSharedBegin || address + 16 > block.shared().size()) {
    Fail("wgmma reads outside of shared memory");
  }
  block.RequireFenced(address, 16);
  block.SeeRead(warp, address, 16);
  warp.Read(address);
  return block.shared().data() + address;
}

// set(row, k, number) for rows from `first` on.
template <class Set>
void ReadMatrix(Warp& warp, const Matrix& matrix, const Shape& shape, uint32_t first, uint32_t rows,
                const Set& set) {
  const uint32_t each = 16 / shape.width;
  const uint32_t row_step = matrix.rows_contiguous ? each : 1,
                 k_step = matrix.rows_contiguous ? 1 : each;
  for (uint32_t row = 0; row < rows; row += row_step) {
    for (uint32_t k = 0; k < shape.depth; k += k_step) {
      const char* from = ReadChunk(warp, matrix, shape, first + row, k);
      for (uint32_t n = 0; n < each; ++n, from += shape.width) {
        uint32_t bits = 0;
        std::memcpy(&bits, from, shape.width);
        const float x = shape.widen(bits);
        matrix.rows_contiguous ? set(row + n, k, x) : set(row, k + n, x);
      }
    }
  }
}

struct Operands16 {
  float a[16][32];
  float b[32][kMostColumns];
};

void LoadRows(Warp& warp, const Instruction& i, const Product& product, Operands16& to) {
  const Shape& shape = product.shape;
  if (!product.a_in_registers) {
    const Matrix a(warp.At<uint64_t>(i.a)[0], product.a_transposed);
    const uint32_t first = 16 * static_cast<uint32_t>(warp.index() % 4);
    ReadMatrix(warp, a, shape, first, 16,
               [&](uint32_t row, uint32_t k, float x) { to.a[row][k] = x; });
    return;
  }
  // Register r: rows 0 to 7 where it is even, else 8 to 15; the second half of k from register 2
  // on.
  const uint32_t each = 4 / shape.width;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t word = warp.At<uint32_t>(i.more[shape.columns / 2 + r])[lane];
      const uint32_t k = lane % 4 * each + r / 2 * (shape.depth / 2);
      for (uint32_t n = 0; n < each; ++n) {
        const uint32_t bits = word >> 8 * shape.width * n & (shape.width == 1 ? 0xff : 0xffff);
        to.a[lane / 4 + 8 * (r % 2)][k + n] = shape.widen(bits);
      }
    }
  }
}

// Sums of float8 keep 14 digits of the largest number (measured on Hopper: DeepSeek-V3,
// arXiv:2412.19437, section 3.5.2); others are exact until they are cut to 24 digits.
float SumOfFloat8(float c, const float* a, const float* b, uint32_t depth) {
  int largest = c == 0 ? -200 : std::ilogb(c);
  for (uint32_t k = 0; k < depth; ++k) {
    const double x = static_cast<double>(a[k]) * b[k * kMostColumns];
    if (!std::isfinite(x)) return c + std::nanf("");
    if (x != 0) largest = std::max(largest, std::ilogb(x));
  }
  if (!std::isfinite(c)) return c;
  const auto cut = [&](double x) {
    return std::ldexp(std::trunc(std::ldexp(x, 13 - largest)), largest - 13);
  };
  double sum = cut(c);
  for (uint32_t k = 0; k < depth; ++k) sum += cut(static_cast<double>(a[k]) * b[k * kMostColumns]);
  return CutToFloat(sum);
}

void MultiplyRow(const Shape& shape, const float* a, const Operands16& from, float* c) {
  if (shape.is_float8) {
    for (uint32_t n = 0; n < shape.columns; ++n) {
      c[n] = SumOfFloat8(c[n], a, &from.b[0][n], shape.depth);
    }
    return;
  }
  double exact[kMostColumns];
  for (uint32_t n = 0; n < shape.columns; ++n) exact[n] = c[n];
  for (uint32_t k = 0; k < shape.depth; ++k) {
    const double x = a[k];
    for (uint32_t n = 0; n < shape.columns; ++n) exact[n] += x * from.b[k][n];
  }
  for (uint32_t n = 0; n < shape.columns; ++n) c[n] = CutToFloat(exact[n]);
}

void MultiplyAsync(Warp& warp, const Instruction& i, Lanes lanes) {
  if (lanes != kAllLanes) Fail("wgmma by a part of a warp");
  if (!warp.fenced) Fail("wgmma without wgmma.fence");
  const Product& product = *std::static_pointer_cast<Product>(i.extra);
  const Shape& shape = product.shape;
  static thread_local Operands16 operands;
  LoadRows(warp, i, product, operands);
  const Matrix b(warp.At<uint64_t>(i.b)[0], product.b_transposed);
  ReadMatrix(warp, b, shape, 0, shape.columns,
             [&](uint32_t n, uint32_t k, float x) { operands.b[k][n] = x; });
  const Lanes adds = *warp.At<Lanes>(i.c);
  if (adds != 0 && adds != kAllLanes) Fail("lanes differ about what wgmma adds to");
  float sums[16][kMostColumns];
  const auto each_sum = [&](auto&& body) {  // of lane `lane`, register r, at row and column
    for (uint32_t r = 0; r < shape.columns / 2; ++r) {
      float* const values = warp.At<float>(i.more[r]);
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        const uint32_t row = lane / 4 + 8 * (r / 2 % 2), col = 8 * (r / 4) + 2 * (lane % 4) + r % 2;
        body(values[lane], sums[row][col]);
      }
    }
  };
  each_sum([&](float value, float& sum) { sum = adds != 0 ? value : 0; });
  for (uint32_t row = 0; row < 16; ++row) MultiplyRow(shape, operands.a[row], operands, sums[row]);
  each_sum([&](float& value, float sum) { value = sum; });
}

Shape ShapeOf(const Operation& o) {
  // sync aligned m64nNkK f32 type type
  if (o.words.size() != 7 || o.words[4] != "f32" || o.words[5] != o.words[6]) Fail("this wgmma");
  const std::string_view sizes = o.words[3];
  const size_t k = sizes.find('k');
  if (!sizes.starts_with("m64n") || k == std::string_view::npos) Fail("the shape of wgmma");
  Shape shape = {};
  shape.columns = static_cast<uint32_t>(Decoder::Immediate(sizes.substr(4, k - 4), 4));
  shape.depth = static_cast<uint32_t>(Decoder::Immediate(sizes.substr(k + 1), 4));
  const std::string_view type = o.words[5];
  shape.width = type == "e4m3" ? 1 : 2;
  shape.is_float8 = type == "e4m3";
  shape.widen = type == "f16"    ? WidenHalf
                : type == "bf16" ? WidenBFloat
                : type == "e4m3" ? WidenE4M3
                                 : nullptr;
  if (shape.widen == nullptr || shape.depth * shape.width != 32) Fail("the type of wgmma");
  if (shape.columns % 8 != 0 || shape.columns > kMostColumns) Fail("columns of wgmma");
  return shape;
}

bool DecodeProduct(Decoder& decoder, const Operation& o, Instruction& i) {
  Product product = {ShapeOf(o), false, false, false};
  for (const std::string_view element : decoder.Elements(o.operands.at(0))) {
    i.more.push_back(decoder.DestinationOf(element, 4).at);
  }
  if (i.more.size() != product.shape.columns / 2) Fail("sums of wgmma");
  product.a_in_registers = o.operands.at(1).front() == '{';
  if (product.a_in_registers) {
    for (const std::string_view element : decoder.Elements(o.operands[1])) {
      i.more.push_back(decoder.Source(element, 4).at);
    }
    if (i.more.size() != product.shape.columns / 2 + 4) Fail("registers of a");
  } else {
    i.a = decoder.Source(o.operands[1], 8).at;
  }
  i.b = decoder.Source(o.operands.at(2), 8).at;
  i.c = decoder.Predicate(o.operands.at(3)).at;
  if (o.operands.at(4) != "1" || o.operands.at(5) != "1") Fail("factors of wgmma");
  const size_t transposes = product.shape.is_float8 ? 0 : product.a_in_registers ? 1 : 2;
  if (o.operands.size() != 6 + transposes) Fail("operands of wgmma");
  if (transposes == 2) product.a_transposed = o.operands[6] == "1";
  if (transposes > 0) product.b_transposed = o.operands.back() == "1";
  i.extra = std::make_shared<Product>(product);
  i.run = MultiplyAsync;
  return true;
}

// Registers of a thread: a multiple of 8 from 24 to 256; all of a multiprocessor's are 65536.
void SetRegisters(Warp& warp, const Instruction& i, Lanes) {
  if (i.imm % 8 != 0 || i.imm < 24 || i.imm > 256) Fail("a number of registers");
  warp.registers_each = static_cast<int>(i.imm);
  warp.block().CheckRegisters();
}

}  // namespace

bool DecodeWarpGroup(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name == "setmaxnreg") {
    i.imm = static_cast<int64_t>(Decoder::Immediate(o.operands.at(0), 4));
    i.kind = Kind::kAligned;
    i.run = SetRegisters;
    return true;
  }
  if (o.name != "wgmma") return false;
  i.kind = Kind::kAligned;
  if (o.Has("fence")) {
    i.run = [](Warp& w, const Instruction&, Lanes) { w.fenced = true; };
    return true;
  }
  if (o.Has("commit_group")) {
    i.run = [](Warp& w, const Instruction&, Lanes) { ++w.product_group; };
    return true;
  }
  if (o.Has("wait_group")) {
    i.imm = static_cast<int64_t>(Decoder::Immediate(o.operands.at(0), 4));
    i.run = [](Warp& w, const Instruction& n, Lanes) {
      w.FinishProducts(static_cast<uint32_t>(n.imm));
    };
    return true;
  }
  return DecodeProduct(decoder, o, i);
}

}  // namespace heed::interpreter
