#ifndef ESPALIER_OPS_MATMUL_PREPARED_WEIGHT_H_
#define ESPALIER_OPS_MATMUL_PREPARED_WEIGHT_H_

#include <cstdint>
#include <string>

#include "espalier/autograd/variable.h"
#include "espalier/ops/matmul/matmul.h"

namespace espalier {

// What a dense weight W [out, in] is laid out for. Each layout is a copy of W
// as panels of 16 columns of B, in the words that the kernels multiply
// (ops/gemm/tile.h): nearly W's own bytes for bf16 beside bf16 activations,
// 4 bytes an element else, and for bf16 on instruction sets without bf16
// products.
struct PrepareOptions {
  DType activations = kBF16;   // of x and dy; f32 or bf16
  bool forward = true;         // y = x W^T: panels of 16 out features
  bool input_gradient = true;  // dx = dy W: panels of 16 in features
};

// A frozen dense weight with its layouts. A handle, immutable,
// thread-compatible; good in the context that made it.
class PreparedWeight {
 public:
  int64_t out_features() const { return shape_.dim(0); }
  int64_t in_features() const { return shape_.dim(1); }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }  // of W
  const PrepareOptions& options() const { return options_; }
  Device& device() const;

  // Absent where not prepared: W in place then serves, and is held.
  const Tensor& forward() const { return forward_; }
  const Tensor& input_gradient() const { return input_gradient_; }
  const Tensor& in_place() const { return in_place_; }

  // Of the layouts: what the policy costs.
  int64_t prepared_bytes() const;
  // The layouts, and W where it is held and not mapped file pages.
  int64_t resident_bytes() const;

 private:
  friend PreparedWeight PrepareWeight(const Tensor& weight,
                                      const PrepareOptions& options);
  PreparedWeight(Tensor weight, const PrepareOptions& options);

  Shape shape_;
  DType dtype_;
  PrepareOptions options_;
  Tensor forward_, input_gradient_, in_place_;
};

// "bf16 [3072, 4096] for bf16, forward and input gradient, 50331648 bytes"
std::string ToString(const PreparedWeight& weight);

// Lays out `weight`, f32 or bf16, once, in memory of its device counted as
// kWeights. With both layouts the weight itself may be dropped. Later changes
// of the weight are not seen.
// Fails: INTERNAL on another dtype or shape, or nothing to prepare.
PreparedWeight PrepareWeight(const Tensor& weight,
                             const PrepareOptions& options = {});

// Linear of matmul.h with the same bits, without packing W in every product
// whose layout is there; x has the dtype prepared for, and so has y. The weight
// has no gradient.
// Fails: INTERNAL on a shape, dtype or device mismatch.
Variable Linear(const Variable& x, const PreparedWeight& weight,
                const Variable& bias = {}, const LinearOptions& options = {},
                const Variable& addend = {});

}  // namespace espalier

#endif  // ESPALIER_OPS_MATMUL_PREPARED_WEIGHT_H_
