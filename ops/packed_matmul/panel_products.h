#ifndef ESPALIER_OPS_PACKED_MATMUL_PANEL_PRODUCTS_H_
#define ESPALIER_OPS_PACKED_MATMUL_PANEL_PRODUCTS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "espalier/ops/gemm/gemm.h"
#include "espalier/runtime/device.h"

// Many products of differing sizes, each with a B that is decoded on the way:
// the kernel of packed_matmul and of grouped_matmul. Raw memory; nothing here
// allocates, and of what it is given only the workspace's size is checked.
namespace espalier::packed {

// A piece of a product whose B is decoded in registers.
struct FusedArgs {
  const void* source = nullptr;  // of B
  int64_t m = 0;                 // rows of A and C, up to Fused::most_rows
  int64_t k = 0;
  int64_t k_block = 0;      // of gemm::SplitK
  const void* a = nullptr;  // bf16 [m, k], rows apart by a_stride
  int64_t a_stride = 0;
  int64_t lane_begin = 0;  // columns of C, a multiple of kProductChunk
  int64_t num_lanes = 0;
  void* c = nullptr;  // element (0, c_lane) of C
  int64_t c_lane = 0;
  int64_t c_stride = 0;
  DType c_dtype = kBF16;
  void* scratch = nullptr;  // Fused::scratch_bytes
};
struct Fused {
  // False where the operand needs the general way; nothing is written then.
  bool (*run)(const FusedArgs& args) = nullptr;  // null: none
  int64_t (*scratch_bytes)(const void* source, int64_t m) = nullptr;
  int64_t most_rows = 0;  // of a product; beyond, the general way is faster
  int64_t a_bytes = 0;    // of packed rows that a task should hold at most
};

// C [m, n] = alpha A [m, k] B [k, n] + beta C + bias[n], C row-major. m, n, k
// >= 0; k == 0 leaves the other terms. With beta 0 C is not read.
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  gemm::Operand a;                  // lanes are rows of A
  gemm::Operand b;                  // lanes are columns of B
  gemm::PackBFn* pack_b = nullptr;  // in place of b
  Fused fused;                      // beside pack_b
  const void* source = nullptr;     // of pack_b and fused
  void* c = nullptr;
  int64_t c_stride = 0;
  float alpha = 1;
  float beta = 0;
  const void* bias = nullptr;  // may be absent
  DType bias_dtype = kF32;

  bool plain() const { return alpha == 1 && beta == 0 && bias == nullptr; }
};

// Numerics are those of gemm.h: K is cut by gemm::SplitK, an element's bits
// depend on K alone, never on m, n, the other products or the number of
// threads. C is f32 or bf16, rounded once.
struct Products {
  absl::Span<const Product> list;
  gemm::Compute compute = gemm::Compute::kF32;
  DType c_dtype = kF32;
};

// Columns of C of a task.
inline constexpr int64_t kProductChunk = 384;

// Bytes of scratch for RunProducts on a pool of num_threads.
int64_t ProductsWorkspaceBytes(const Products& products, Isa isa,
                               int num_threads);

// Fails INTERNAL, before anything is written, in a workspace that is too small.
void RunProducts(const Products& products, const Exec& exec,
                 const gemm::Workspace& workspace);

}  // namespace espalier::packed

#endif  // ESPALIER_OPS_PACKED_MATMUL_PANEL_PRODUCTS_H_
