#ifndef ESPALIER_OPS_GEMM_GEMM_H_
#define ESPALIER_OPS_GEMM_GEMM_H_

#include <cstdint>

#include "espalier/ops/gemm/tile.h"
#include "espalier/runtime/device.h"

// Packed matrix products on raw memory, for the kernels of other ops. Nothing
// here allocates, and of what it is given only the workspace's size is checked.
namespace espalier::gemm {

// A source of B that is not plain strided memory: packed weights. Called from
// several threads at once, for args.num_lanes columns (a multiple of kLanes
// but for the last) from args.lane_begin (a multiple of kLanes); args.operand
// is empty. Writes all panels in the format of `tile` (tile.h), zeros included.
using PackBFn = void(const void* source, const Tile& tile,
                     const PackArgs& args);

// Per batch entry, with C row-major:
//   C[m, n] = alpha * sum_k A[m, k] B[k, n] + beta * C[m, n] + bias[n]
// A and B f32 or bf16; accumulated in f32; C f32 or bf16, rounded once. With
// beta 0, C is not read. m, n, k >= 0; k == 0 leaves beta C + bias. The K
// dimension is cut by K alone (plan.h), so an element's bits do not depend on
// M, N, threads or the form in which the operands lie.
struct GemmArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Operand a;  // lanes are rows of A
  Operand b;  // lanes are columns of B
  // In place of b: all K of B packed once by PackB, or a packing function.
  const uint32_t* packed_b = nullptr;
  PackBFn* pack_b = nullptr;
  const void* pack_b_source = nullptr;
  Compute compute = Compute::kF32;  // ComputeFor(a.dtype, b.dtype)
  void* c = nullptr;
  DType c_dtype = kF32;
  int64_t c_stride = 0;  // elements between rows
  float alpha = 1;
  float beta = 0;
  const void* bias = nullptr;
  DType bias_dtype = kF32;
  int64_t num_batches = 1;  // strides in elements; 0 shares an operand
  int64_t a_batch_stride = 0;
  int64_t b_batch_stride = 0;
  int64_t c_batch_stride = 0;
};

// Scratch memory, aligned to 64.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

// Bytes of scratch that Gemm or GemmSerial needs for exactly these sizes,
// dtypes and instruction set. Not monotone: fewer rows may take more.
int64_t WorkspaceBytes(const GemmArgs& args, Isa isa);
// The most that one product (num_batches 1) needs of any m, or k, in [1, what
// `args` says], all else alike.
int64_t WorkspaceBytesUpToM(const GemmArgs& args, Isa isa);
int64_t WorkspaceBytesUpToK(const GemmArgs& args, Isa isa);

// Runs on the pool of `exec`; returns when done. Bit-equal at any number of
// threads. Fails INTERNAL, before anything is written, in a workspace that is
// too small.
void Gemm(const GemmArgs& args, const Exec& exec, const Workspace& workspace);

// The same on the calling thread, same bits: for use inside another kernel's
// parallel region, one workspace per concurrent call.
void GemmSerial(const GemmArgs& args, Isa isa, const Workspace& workspace);

// A B operand [k, n] packed once: ceil(n / 16) panels of words(k) * 16 words.
int64_t PackedBBytes(int64_t n, int64_t k, const Tile& tile);
void PackB(const Operand& b, int64_t n, int64_t k, const Tile& tile,
           ThreadPool& pool, uint32_t* out);

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_GEMM_H_
