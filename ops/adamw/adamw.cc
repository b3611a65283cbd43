#include "espalier/ops/adamw/adamw.h"

#include <cmath>

#include "espalier/ops/adamw/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<adamw::Args> kUpdate[] = {
    {kCpu, kF64, adamw::Ref},
    {kCpu, kF32, adamw::CpuF32},
};

}  // namespace

void AdamW(const Tensor& parameter, const Tensor& gradient,
           const Tensor& first_moment, const Tensor& second_moment,
           const AdamWUpdate& update, const Tensor& bf16_copy) {
  for (const Tensor* other : {&gradient, &first_moment, &second_moment}) {
    ESPALIER_CHECK(
        *other && parameter && other->shape() == parameter.shape() &&
            other->dtype() == parameter.dtype() && other->is_contiguous(),
        "parameter is ", ToString(parameter), ", gradient ", ToString(gradient),
        ", moments ", ToString(first_moment), " and ", ToString(second_moment));
  }
  ESPALIER_CHECK(parameter.is_contiguous(), "parameter is strided ",
                 ToString(parameter));
  ESPALIER_CHECK(
      !bf16_copy || (bf16_copy.shape() == parameter.shape() &&
                     bf16_copy.dtype() == kBF16 && bf16_copy.is_contiguous()),
      "bf16 copy is ", ToString(bf16_copy), " for parameter ",
      ToString(parameter));
  ESPALIER_CHECK(update.step >= 1, "step is ", update.step);
  const double step = static_cast<double>(update.step);
  adamw::Args args;
  args.parameter = parameter.view();
  args.gradient = gradient.view();
  args.m = first_moment.view();
  args.v = second_moment.view();
  args.bf16_copy = bf16_copy.view();
  args.beta1 = update.beta1;
  args.beta2 = update.beta2;
  args.eps = update.eps;
  args.gradient_scale = update.gradient_scale;
  args.decay = 1 - update.learning_rate * update.weight_decay;
  args.step_size = update.learning_rate / (1 - std::pow(update.beta1, step));
  args.v_scale = 1 / std::sqrt(1 - std::pow(update.beta2, step));
  Launch("adamw", kUpdate, parameter, args,
         {&gradient, &parameter, &first_moment, &second_moment},
         {&parameter, &first_moment, &second_moment, &bf16_copy});
}

}  // namespace espalier
