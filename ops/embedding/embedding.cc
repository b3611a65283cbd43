#include "espalier/ops/embedding/embedding.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/autograd/node.h"
#include "espalier/ops/embedding/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<embedding::ForwardArgs> kForward[] = {
    {kCpu, kF64, embedding::Forward},
    {kCpu, kF32, embedding::Forward},
    {kCpu, kBF16, embedding::Forward},
};
constexpr Kernel<embedding::BackwardArgs> kBackward[] = {
    {kCpu, kF64, embedding::BackwardF64},
    {kCpu, kF32, embedding::BackwardF32},
    {kCpu, kBF16, embedding::BackwardBF16},
};

struct EmbeddingNode final : autograd::Node {
  EmbeddingNode(Tensor ids, int64_t vocab_size)
      : ids(std::move(ids)), vocab_size(vocab_size) {}
  absl::string_view name() const override { return "embedding"; }
  void ForEachSaved(SavedVisitor visit) override { visit("ids", ids); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Device& device = dy.device();
    Tensor dweight = Tensor::Empty(device, {vocab_size, dy.dim(1)}, dy.dtype());
    const MemoryScope scope(device, MemoryTag::kWorkspace);
    const Tensor heads = Tensor::Empty(device, {vocab_size}, kI32);
    const Tensor chain = Tensor::Empty(device, {ids.dim(0)}, kI32);
    Launch("embedding.backward", kBackward, dy,
           embedding::BackwardArgs{dy.view(), ids.view(), dweight.view(),
                                   heads.view(), chain.view()},
           {&dy, &ids}, {&dweight, &heads, &chain});
    return {std::move(dweight)};
  }
  Tensor ids;  // [T] i32
  const int64_t vocab_size;
};

void CheckIds(const Tensor& ids, int64_t vocab_size) {
  if (!ids.device().host_addressable()) return;
  const int32_t* values = ids.data<int32_t>();
  for (int64_t t = 0; t < ids.dim(0); ++t) {
    if (values[t] >= 0 && values[t] < vocab_size) continue;
    internal::Fail(absl::InvalidArgumentError(
        absl::StrCat("token id ", values[t], " at position ", t,
                     ", expected from 0 to ", vocab_size - 1)));
  }
}

}  // namespace

Variable Embedding(const Variable& weight, const Tensor& ids) {
  const Tensor& w = weight.value();
  ESPALIER_CHECK(w.ndim() == 2 && w.is_contiguous(), "weight is ", ToString(w));
  ESPALIER_CHECK(ids.ndim() == 1 && ids.dtype() == kI32 && ids.is_contiguous(),
                 "ids is ", ToString(ids));
  CheckIds(ids, w.dim(0));
  Tensor y = Tensor::Empty(w.device(), {ids.dim(0), w.dim(1)}, w.dtype());
  Launch("embedding", kForward, w,
         embedding::ForwardArgs{w.view(), ids.view(), y.view()}, {&w, &ids},
         {&y});
  return autograd::Record(
      std::move(y), std::make_unique<EmbeddingNode>(ids, w.dim(0)), {&weight});
}

}  // namespace espalier
