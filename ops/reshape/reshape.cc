#include "espalier/ops/reshape/reshape.h"

#include <memory>
#include <vector>

#include "espalier/autograd/node.h"

namespace espalier {

namespace {

struct ReshapeNode final : autograd::Node {
  explicit ReshapeNode(const Shape& shape) : shape(shape) {}
  absl::string_view name() const override { return "reshape"; }
  void ForEachSaved(SavedVisitor) override {}
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    return {dys[0].Reshape(shape.dims())};
  }
  const Shape shape;
};

}  // namespace

Variable Reshape(const Variable& x, absl::Span<const int64_t> dims) {
  return autograd::Record(x.value().Reshape(dims),
                          std::make_unique<ReshapeNode>(x.shape()), {&x});
}

}  // namespace espalier
