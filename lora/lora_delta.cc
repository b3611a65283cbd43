#include "espalier/lora/lora_delta.h"

#include <cmath>
#include <utility>

#include "absl/strings/string_view.h"

#include "espalier/ops/cast/cast.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/runtime/rng.h"

namespace espalier::lora {

namespace {

Tensor InitialA(const Shape& shape, uint64_t seed, absl::string_view name,
                Device& device) {
  Tensor a = Tensor::Empty(device, shape, kF32);
  const double bound = 1 / std::sqrt(static_cast<double>(shape.dim(1)));
  FillUniform(a, Rng{seed, StreamOf(name)}, -bound, bound);
  return a;
}

}  // namespace

LoraDelta::LoraDelta(std::string name, const LinearLayer& base,
                     int64_t lora_rank, double lora_alpha, uint64_t seed,
                     Device& device)
    : LinearDelta(std::move(name)),
      lora_a_(AddParameter("lora_A.weight", {lora_rank, base.in_features()})),
      lora_b_(AddParameter("lora_B.weight", {base.out_features(), lora_rank})),
      scaling_(lora_alpha / static_cast<double>(lora_rank)) {
  const MemoryScope scope(device, MemoryTag::kWeights);
  lora_a_.SetValue(InitialA(lora_a_.shape(), seed, this->name(), device),
                   /*trainable=*/true);
  lora_b_.SetValue(Tensor::Zeros(device, lora_b_.shape(), kF32),
                   /*trainable=*/true);
}

Variable LoraDelta::Forward(const Variable& x, const Variable& y) {
  const Variable a = Cast(lora_a_.variable(), x.dtype());
  const Variable b = Cast(lora_b_.variable(), x.dtype());
  return AddScaled(y, Linear(Linear(x, a), b), scaling_);
}

}  // namespace espalier::lora
