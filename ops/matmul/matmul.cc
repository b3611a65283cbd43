#include "espalier/ops/matmul/matmul.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "espalier/autograd/node.h"
#include "espalier/ops/matmul/internal/product.h"
#include "espalier/ops/matmul/linear_terms.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace {

using matmul::AsMatrix;
using matmul::Product;
using matmul::Terms;

Tensor Transposed(const Tensor& x) { return x.Transpose(-2, -1); }
Tensor TransposedIf(bool transpose, const Tensor& x) {
  return transpose ? Transposed(x) : x;
}

struct Form {
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1;
  double beta = 1;
  bool shared_b = false;  // one matrix b for all leading dims of a
};

struct MatMulNode final : autograd::Node {
  absl::string_view name() const override { return "matmul"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("a", a);
    visit("b", b);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor da, db, dbias, daddend;
    if (needs_grad(0)) {
      da = Tensor::Empty(dy.device(), a_shape, a_dtype);
      BackwardA(Flat(dy), Flat(da));
    }
    if (needs_grad(1)) {
      db = Tensor::Empty(dy.device(), b_shape, b_dtype);
      BackwardB(Flat(dy), db);
    }
    if (needs_grad(2)) dbias = matmul::BiasGradient(dy, bias_dtype);
    if (needs_grad(3)) daddend = matmul::AddendGradient(dy, form.beta);
    return {std::move(da), std::move(db), std::move(dbias), std::move(daddend)};
  }

  Tensor Flat(const Tensor& x) const { return form.shared_b ? AsMatrix(x) : x; }
  void BackwardA(const Tensor& dc, const Tensor& da) const {
    const Tensor op_b = TransposedIf(form.transpose_b, b);
    if (form.transpose_a) {
      Product("matmul.da", op_b, Transposed(dc), {}, form.alpha, da);
    } else {
      Product("matmul.da", dc, Transposed(op_b), {}, form.alpha, da);
    }
  }
  void BackwardB(const Tensor& dc, const Tensor& db) const {
    const Tensor op_a = TransposedIf(form.transpose_a, Flat(a));
    if (form.transpose_b) {
      Product("matmul.db", Transposed(dc), op_a, {}, form.alpha, db);
    } else {
      Product("matmul.db", Transposed(op_a), dc, {}, form.alpha, db);
    }
  }

  Form form;
  Shape a_shape, b_shape;
  DType a_dtype = kF32, b_dtype = kF32, bias_dtype = kF32;
  Tensor a;  // [.., M, K] as given, for the gradient of b
  Tensor b;  // [.., K, N] as given, for the gradient of a
};

bool SameLeadingDims(const Tensor& a, const Tensor& b) {
  if (a.ndim() != b.ndim()) return false;
  for (int d = 0; d + 2 < a.ndim(); ++d) {
    if (a.dim(d) != b.dim(d)) return false;
  }
  return true;
}

void CheckDTypes(const Tensor& a, const Tensor& b, DType out) {
  const bool all_f64 = a.dtype() == kF64 && b.dtype() == kF64 && out == kF64;
  ESPALIER_CHECK(all_f64 || (matmul::Narrow(a.dtype()) &&
                             matmul::Narrow(b.dtype()) && matmul::Narrow(out)),
                 "a is ", ToString(a), ", b is ", ToString(b), ", out ",
                 ToString(out));
}

Variable Multiply(const Variable& a, const Variable& b, const Variable& bias,
                  const Variable& addend, Form form, DType out_dtype) {
  const Tensor& av = a.value();
  const Tensor& bv = b.value();
  form.shared_b = bv.ndim() == 2 && av.ndim() > 2;
  const Tensor op_a =
      TransposedIf(form.transpose_a, form.shared_b ? AsMatrix(av) : av);
  const Tensor op_b = TransposedIf(form.transpose_b, bv);
  std::vector<int64_t> dims(av.shape().dims().begin(),
                            av.shape().dims().end() - 2);
  dims.push_back(form.transpose_a ? av.dim(-1) : av.dim(-2));
  dims.push_back(op_b.dim(-1));
  const Tensor c = Tensor::Empty(av.device(), Shape(dims), out_dtype);
  matmul::CheckAddend(addend, form.beta, c.shape(), out_dtype);
  Terms terms;
  terms.beta = form.beta;
  if (bias) terms.bias = bias.value();
  if (addend) {
    terms.addend = form.shared_b ? AsMatrix(addend.value()) : addend.value();
  }
  Product("matmul", op_a, op_b, terms, form.alpha,
          form.shared_b ? AsMatrix(c) : c);
  auto node = std::make_unique<MatMulNode>();
  node->form = form;
  node->a_shape = av.shape();
  node->b_shape = bv.shape();
  node->a_dtype = av.dtype();
  node->b_dtype = bv.dtype();
  if (bias) node->bias_dtype = terms.bias.dtype();
  if (autograd::NeedsGrad(b)) node->a = av;
  if (autograd::NeedsGrad(a)) node->b = bv;
  return autograd::Record(c, std::move(node), {&a, &b, &bias, &addend});
}

}  // namespace

Variable MatMul(const Variable& a, const Variable& b,
                const MatMulOptions& options, const Variable& addend) {
  const Tensor& av = a.value();
  const Tensor& bv = b.value();
  const DType out = options.out_dtype.value_or(av.dtype());
  ESPALIER_CHECK(av.ndim() >= 2 && bv.ndim() >= 2, "a is ",
                 ToString(av.shape()), ", b is ", ToString(bv.shape()));
  ESPALIER_CHECK(
      SameLeadingDims(av, bv) ||
          (bv.ndim() == 2 && !options.transpose_a && av.is_contiguous()),
      "leading dims of a ", ToString(av.shape()), " and b ",
      ToString(bv.shape()));
  ESPALIER_CHECK(av.dim(options.transpose_a ? -2 : -1) ==
                     bv.dim(options.transpose_b ? -1 : -2),
                 "a is ", ToString(av.shape()),
                 options.transpose_a ? " transposed" : "", ", b is ",
                 ToString(bv.shape()),
                 options.transpose_b ? " transposed" : "");
  CheckDTypes(av, bv, out);
  return Multiply(a, b, {}, addend,
                  {.transpose_a = options.transpose_a,
                   .transpose_b = options.transpose_b,
                   .alpha = options.alpha,
                   .beta = options.beta},
                  out);
}

Variable Linear(const Variable& x, const Variable& weight, const Variable& bias,
                const LinearOptions& options, const Variable& addend) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  const DType out = options.out_dtype.value_or(xv.dtype());
  ESPALIER_CHECK(xv.ndim() >= 2 && xv.is_contiguous() && wv.ndim() == 2 &&
                     wv.dim(1) == xv.dim(-1),
                 "weight is ", ToString(wv.shape()), " for x ",
                 ToString(xv.shape()));
  matmul::CheckBias(bias, wv.dim(0), xv);
  CheckDTypes(xv, wv, out);
  return Multiply(
      x, weight, bias, addend,
      {.transpose_b = true, .alpha = options.alpha, .beta = options.beta}, out);
}

}  // namespace espalier
