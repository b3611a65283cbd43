#include "espalier/ops/adamw8bit/adamw8bit.h"

#include <cmath>
#include <vector>

#include "espalier/ops/adamw8bit/internal/kernels.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<adamw8bit::Args> kUpdate[] = {
    {kCpu, kF32, adamw8bit::Cpu},
};

}  // namespace

AdamW8BitMoments AdamW8BitMoments::Zeros(Device& device, int64_t n) {
  const int64_t blocks = CeilDiv(n, kBlock);
  const std::vector<uint8_t> middle(static_cast<size_t>(n), 128);
  return {Tensor::FromHost<uint8_t>(device, {n}, middle),
          Tensor::Zeros(device, {n}, kU8),
          Tensor::Zeros(device, {blocks}, kF32),
          Tensor::Zeros(device, {blocks}, kF32)};
}

void AdamW8Bit(const Tensor& parameter, const Tensor& gradient,
               const AdamW8BitMoments& moments, const AdamWUpdate& update) {
  const int64_t n = parameter.num_elements();
  const int64_t blocks = CeilDiv(n, AdamW8BitMoments::kBlock);
  ESPALIER_CHECK(
      parameter && gradient && parameter.is_contiguous() &&
          gradient.shape() == parameter.shape() &&
          gradient.dtype() == parameter.dtype() && gradient.is_contiguous(),
      "parameter is ", ToString(parameter), ", gradient ", ToString(gradient));
  const auto fits = [](const Tensor& tensor, int64_t count, DType dtype) {
    return tensor.shape() == Shape{count} && tensor.dtype() == dtype &&
           tensor.is_contiguous();
  };
  ESPALIER_CHECK(
      fits(moments.m_codes, n, kU8) && fits(moments.v_codes, n, kU8) &&
          fits(moments.m_scales, blocks, kF32) &&
          fits(moments.v_scales, blocks, kF32),
      "moments are ", ToString(moments.m_codes), ", ",
      ToString(moments.v_codes), " with scales ", ToString(moments.m_scales),
      ", ", ToString(moments.v_scales), " for parameter ", ToString(parameter));
  ESPALIER_CHECK(update.step >= 1, "step is ", update.step);
  const double step = static_cast<double>(update.step);
  adamw8bit::Args args;
  args.parameter = parameter.view();
  args.gradient = gradient.view();
  args.m_codes = moments.m_codes.view();
  args.v_codes = moments.v_codes.view();
  args.m_scales = moments.m_scales.view();
  args.v_scales = moments.v_scales.view();
  args.beta1 = update.beta1;
  args.beta2 = update.beta2;
  args.eps = update.eps;
  args.gradient_scale = update.gradient_scale;
  args.decay = 1 - update.learning_rate * update.weight_decay;
  args.step_size = update.learning_rate / (1 - std::pow(update.beta1, step));
  args.v_scale = 1 / std::sqrt(1 - std::pow(update.beta2, step));
  Launch("adamw8bit", kUpdate, parameter, args, {&gradient},
         {&parameter, &moments.m_codes, &moments.v_codes, &moments.m_scales,
          &moments.v_scales});
}

}  // namespace espalier
