#ifndef ESPALIER_OPS_MATMUL_INTERNAL_PRODUCT_H_
#define ESPALIER_OPS_MATMUL_INTERNAL_PRODUCT_H_

#include "absl/strings/string_view.h"

#include "espalier/runtime/tensor.h"

// The one launch behind MatMul and Linear.
namespace espalier::matmul {

// What is added to a product; both may be absent.
struct Terms {
  Tensor bias;    // [N]
  Tensor addend;  // as c
  double beta = 0;
};

// c = alpha * a b + beta * addend + bias
//   a [.., M, K]   b [.., K, N]   c [.., M, N]
void Product(absl::string_view op, const Tensor& a, const Tensor& b,
             const Terms& terms, double alpha, const Tensor& c);

// The same with b [K, N], of dtype `b_dtype`, as panels (kernels.h).
void PanelProduct(absl::string_view op, const Tensor& a, const Tensor& panels,
                  DType b_dtype, const Terms& terms, double alpha,
                  const Tensor& c);

}  // namespace espalier::matmul

#endif  // ESPALIER_OPS_MATMUL_INTERNAL_PRODUCT_H_
