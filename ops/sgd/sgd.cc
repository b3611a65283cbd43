#include "espalier/ops/sgd/sgd.h"

#include "espalier/ops/sgd/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<sgd::Args> kUpdate[] = {
    {kCpu, kF64, sgd::Ref},
    {kCpu, kF32, sgd::CpuF32},
};

}  // namespace

void Sgd(const Tensor& parameter, const Tensor& gradient,
         const Tensor& momentum_buffer, const SgdUpdate& update) {
  ESPALIER_CHECK(static_cast<bool>(momentum_buffer) == (update.momentum != 0),
                 "momentum is ", update.momentum, ", its buffer ",
                 ToString(momentum_buffer));
  ESPALIER_CHECK(!update.nesterov || update.momentum != 0,
                 "nesterov without momentum");
  ESPALIER_CHECK(parameter && gradient, "parameter is ", ToString(parameter),
                 ", gradient ", ToString(gradient));
  for (const Tensor* other : {&gradient, &momentum_buffer}) {
    if (!*other) continue;
    ESPALIER_CHECK(other->shape() == parameter.shape() &&
                       other->dtype() == parameter.dtype() &&
                       other->is_contiguous(),
                   "parameter is ", ToString(parameter), ", gradient ",
                   ToString(gradient), ", buffer ", ToString(momentum_buffer));
  }
  ESPALIER_CHECK(parameter.is_contiguous(), "parameter is strided ",
                 ToString(parameter));
  Launch("sgd", kUpdate, parameter,
         sgd::Args{parameter.view(), gradient.view(), momentum_buffer.view(),
                   update.learning_rate, update.momentum, update.gradient_scale,
                   1 - update.learning_rate * update.weight_decay,
                   update.nesterov},
         {&gradient, &parameter, &momentum_buffer},
         {&parameter, &momentum_buffer});
}

}  // namespace espalier
