#ifndef ESPALIER_OPS_GEMM_TILE_H_
#define ESPALIER_OPS_GEMM_TILE_H_

#include <cstdint>

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/dtype.h"

// The single-threaded parts of a matrix product: packing an operand into
// panels, and the register tile that runs over two packed panels. Kernels with
// a blocking of their own (attention, linear_cross_entropy) are built from
// these; everything else calls gemm.h.
//
// A panel holds up to kLanes rows of A, or columns of B, ("lanes") as
// [num_words][pitch] words of 32 bits: one f32, or one pair of bf16 neighbours
// along K (even k in the low half). Missing lanes and a missing last k are
// zero. A and B have the same panel format; a panel of A fills only
// Tile::rows lanes, and its pitch is Tile::a_pitch.
//
// Numerics, the same for every instruction set: an element of C is, within
// one run of a tile, a chain of fused multiply-adds that starts at zero and
// takes k in rising order, for bf16 in the order 1 0 3 2 5 4 ... (that of
// vdpbf16ps). It depends on K alone, never on M, N or the tile's shape.
// vdpbf16ps flushes subnormals to zero; the f32 tiles do not.
namespace espalier::gemm {

inline constexpr int kLanes = 16;
inline constexpr int kPrefetchLines = 32;

// What the products are computed in: f32 operands by f32 FMA; bf16 pairs with
// f32 accumulation, natively or, where the ISA has no bf16 dot product, widened
// to f32 words by the packing.
enum class Compute : uint8_t { kF32, kBF16 };

// One operand in memory: element (lane, k) at data[lane * lane_stride + k *
// k_stride]. Row-major A [M, K] is {lda, 1}, its transpose {1, lda}; row-major
// B [K, N] is {1, ldb}, a weight [N, K] used as B is {ldb, 1}. Fast where
// either stride is 1. dtype kF32 or kBF16: bf16 widens exactly under
// Compute::kF32, f32 rounds to bf16 under Compute::kBF16.
struct Operand {
  const void* data = nullptr;
  DType dtype = kF32;
  int64_t lane_stride = 0;
  int64_t k_stride = 1;
};

// Packs lanes [lane_begin, lane_begin + num_lanes) and k [k_begin, k_begin +
// num_k) of an operand; num_lanes and num_k may be 0, k_begin is even.
// Panel p takes the next panel_lanes lanes and starts at out + p * out_stride.
struct PackArgs {
  Operand operand;
  int64_t lane_begin = 0;
  int64_t num_lanes = 0;
  int64_t k_begin = 0;
  int64_t num_k = 0;
  int panel_lanes = kLanes;
  uint32_t* out = nullptr;
  int64_t out_stride = 0;  // words between panels
};

// The last step on an element, done once, in f32:
//   out = alpha * (partial + tile) + beta * out + bias[column]
// and rounded once to out's dtype. With beta 0 out is not read.
struct Finish {
  float alpha = 1;
  float beta = 0;
  const float* partial = nullptr;  // null: nothing to add
  int64_t partial_stride = 0;
  const void* bias = nullptr;  // null, or one value a column
  DType bias_dtype = kF32;
  void* out = nullptr;
  int64_t out_stride = 0;
  DType out_dtype = kF32;
  // `out` may be written past the caches: it begins at a cache line, rows are
  // whole lines, and Tile::flush follows. For results that no cache holds.
  bool stream = false;
};

enum class TileStore : uint8_t {
  kStore,   // c = tile
  kAdd,     // c = c + tile
  kFinish,  // as Finish says; c is unused
};

// A run of the register tile: `rows` (1..Tile::max_rows(vectors)) by `cols`
// (1..16 * vectors) elements. Panel v of B is b + v * b_stride.
struct TileArgs {
  int64_t num_words = 0;
  const uint32_t* a = nullptr;
  int64_t a_pitch = 0;  // run_unpacked: words between neighbouring k, >= rows
  const uint32_t* b = nullptr;
  int64_t b_stride = 0;  // words
  int rows = 0;
  int cols = 0;
  TileStore store = TileStore::kStore;
  float* c = nullptr;
  int64_t c_stride = 0;  // floats
  const Finish* finish = nullptr;
  // What to bring into L2 on the way, null for nothing: at word w the line at
  // prefetch + w / kPrefetchLines * prefetch_step + w % kPrefetchLines *
  // prefetch_line_step bytes. Need not be readable memory.
  const void* prefetch = nullptr;
  int64_t prefetch_line_step = 64;
  int64_t prefetch_step = int64_t{kPrefetchLines} * 64;
};

// One instruction set's kernels for one Compute. Immutable, lives for ever.
struct Tile {
  Isa isa;
  Compute compute;
  // Words that hold num_k elements of a lane: ceil(num_k / k_step) *
  // words_per_step.
  int k_step;
  int words_per_step;
  int a_pitch;      // words between neighbouring k of a panel of A
  int max_vectors;  // panels of B that one run takes
  int rows[5];      // most rows at 1..max_vectors panels (index 0 unused)
  void (*pack_a)(const PackArgs& args);
  void (*pack_b)(const PackArgs& args);
  void (*run)(const TileArgs& args);
  // The same bits without packing B, for few rows: args.b is not read, `b` has
  // k_stride 1, its lanes are [lane, lane + args.cols), at most 16, its k
  // [k, k + num_k). Fetched ahead are as many rows, as long as these, from
  // args.prefetch on, args.prefetch_step apart. Null: this set has none.
  void (*run_unpacked)(const TileArgs& args, const Operand& b, int64_t lane,
                       int64_t k, int64_t num_k);
  // Before other threads read what Finish::stream wrote. Null: never streams.
  void (*flush)() = nullptr;

  int64_t words(int64_t num_k) const {
    return CeilDiv(num_k, k_step) * words_per_step;
  }
};

// The kernels for an instruction set: never fails, an ISA without its own
// bf16 tile answers with the f32 one behind a widening pack.
const Tile& FindTile(Isa isa, Compute compute);

// Compute for a pair of operand dtypes: kBF16 when both are bf16.
constexpr Compute ComputeFor(DType a, DType b) {
  return a == kBF16 && b == kBF16 ? Compute::kBF16 : Compute::kF32;
}

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_TILE_H_
