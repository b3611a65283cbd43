#ifndef ESPALIER_TESTS_SUPPORT_TINY_OPS_H_
#define ESPALIER_TESTS_SUPPORT_TINY_OPS_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

#include "espalier/autograd/node.h"
#include "espalier/autograd/rng_stream.h"
#include "espalier/autograd/variable.h"

// Ops of a few lines for the tests of the tape, f32 and f64 on the cpu device,
// any shape, operands of one shape.
namespace espalier::test {

// a + b; its backward hands out dy itself twice.
Variable TinyAdd(const Variable& a, const Variable& b);
// a * b; saves what the wanted gradients need.
Variable TinyMul(const Variable& a, const Variable& b);
// sin(x); saves x, and can be made again.
Variable TinySin(const Variable& x);
// {2 x, 3 x}; saves nothing.
std::vector<Variable> TinyFan(const Variable& x);
// a * b; *runs counts how often it was computed.
Variable TinyExpensive(const Variable& a, const Variable& b, int* runs);
// x with elements set to 0 by the numbers of rng, the others doubled.
Variable TinyDropout(const Variable& x, autograd::RngStream& rng);
// x where it is the largest of its pair (2 i, 2 i + 1), 0 elsewhere. Which one
// that is, is a decision; of equals it is the first.
Variable TinyRoute(const Variable& x);

// A node whose Backward is given by the test; saves `saved`.
class TinyNode final : public autograd::Node {
 public:
  using BackwardFn =
      std::function<std::vector<Tensor>(TinyNode&, absl::Span<const Tensor>)>;
  using RecomputeFn = std::function<Tensor(TinyNode&)>;
  TinyNode(std::string name, std::vector<Tensor> saved, BackwardFn backward,
           RecomputeFn recompute = nullptr)
      : saved(std::move(saved)),
        name_(std::move(name)),
        backward_(std::move(backward)),
        recompute_(std::move(recompute)) {}
  absl::string_view name() const override { return name_; }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dy) override {
    return backward_(*this, dy);
  }
  void ForEachSaved(SavedVisitor visit) override {
    for (Tensor& tensor : saved) visit("saved", tensor);
  }
  bool CanRecompute(int) const override { return recompute_ != nullptr; }
  Tensor Recompute(int) override { return recompute_(*this); }
  std::vector<Tensor> saved;

 private:
  const std::string name_;
  const BackwardFn backward_;
  const RecomputeFn recompute_;
};

// fn(a[i], b[i]) in a new tensor; b may be absent, and then is read as 0.
Tensor Zip(const Tensor& a, const Tensor& b,
           absl::FunctionRef<double(double, double)> fn);

// A leaf of f64 values on Cpu() with `count` elements, first, first + 1, ..
Variable Leaf(int64_t count, double first, bool needs_grad = true);

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_SUPPORT_TINY_OPS_H_
