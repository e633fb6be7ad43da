// Where the numbers of a warp's matrix operands lie: mma.sync m16n8k16 and ldmatrix, as in the PTX
// ISA 9.0, sections 9.7.15.5.8 (fragments of m16n8k16) and 9.7.15.5.15 (ldmatrix). A warp has 32
// lanes; four neighbours, a quad, hold one row of an accumulator.
#ifndef HEED_SRC_CUDA_FRAGMENTS_H_
#define HEED_SRC_CUDA_FRAGMENTS_H_

#include "src/cuda/device.h"

namespace heed::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kWarpRows = 16;  // of an accumulator

// Accumulator (and the pairs of A, 16 x 8 at a time), element e of 4: rows lane / 4 and 8 below.
HEED_DEVICE constexpr int AccumulatorRow(int lane, int e) { return lane / 4 + 8 * (e / 2); }
HEED_DEVICE constexpr int AccumulatorCol(int lane, int e) { return lane % 4 * 2 + e % 2; }

// A row-major 16 x 16 block in shared memory becomes A: the place whose 8 elements lane `lane`
// names to ldmatrix.x4.
HEED_DEVICE constexpr int RowOfA(int lane) { return lane % 16; }
HEED_DEVICE constexpr int ColOfA(int lane) { return lane / 16 * 8; }

// Sixteen rows of k by 16 columns of m become A, transposed.
HEED_DEVICE constexpr int RowOfTransposedA(int lane) { return lane % 8 + lane / 16 * 8; }
HEED_DEVICE constexpr int ColOfTransposedA(int lane) { return lane / 8 % 2 * 8; }

// Sixteen rows of n (keys) by 16 columns of k become B of two neighbouring products.
HEED_DEVICE constexpr int RowOfB(int lane) { return lane % 8 + lane / 16 * 8; }
HEED_DEVICE constexpr int ColOfB(int lane) { return lane / 8 % 2 * 8; }

// Sixteen rows of k (keys) by 16 columns of n become B of two neighbouring products, transposed.
HEED_DEVICE constexpr int RowOfTransposedB(int lane) { return lane % 16; }
HEED_DEVICE constexpr int ColOfTransposedB(int lane) { return lane / 16 * 8; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_FRAGMENTS_H_
