#include <algorithm>
#include <cmath>

#include "espalier/ops/adamw8bit/adamw8bit.h"
#include "espalier/ops/adamw8bit/internal/kernels.h"

namespace espalier::adamw8bit {

namespace {

constexpr int64_t kBlock = AdamW8BitMoments::kBlock;

double Decode(uint8_t code, double scale) {
  const double s = (code - 128) / 127.0;
  return std::copysign(scale * s * s * s * s, s);
}

uint8_t Encode(double m, double scale) {
  if (scale == 0) return 128;
  const double s = std::copysign(std::pow(std::abs(m) / scale, 0.25), m);
  return static_cast<uint8_t>(128 + std::nearbyint(s * 127));
}

double DecodeSquare(uint8_t code, double scale) {
  return scale * std::pow(code / 255.0, 8);
}

uint8_t EncodeSquare(double v, double scale) {
  if (v == 0) return 0;
  return static_cast<uint8_t>(
      std::max(1.0, std::nearbyint(std::pow(v / scale, 0.125) * 255)));
}

}  // namespace

void Ref(const Args& args, const Exec&) {
  float* p = args.parameter.data<float>();
  const float* gradient = args.gradient.data<const float>();
  uint8_t* m_codes = args.m_codes.data<uint8_t>();
  uint8_t* v_codes = args.v_codes.data<uint8_t>();
  const int64_t n = args.parameter.num_elements();
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    float& m_scale = args.m_scales.data<float>()[begin / kBlock];
    float& v_scale = args.v_scales.data<float>()[begin / kBlock];
    double m[kBlock];
    double v[kBlock];
    double m_max = 0;
    double v_max = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double g = args.gradient_scale * gradient[begin + i];
      m[i] = args.beta1 * Decode(m_codes[begin + i], m_scale) +
             (1 - args.beta1) * g;
      v[i] = args.beta2 * DecodeSquare(v_codes[begin + i], v_scale) +
             (1 - args.beta2) * g * g;
      m_max = std::max(m_max, std::abs(m[i]));
      v_max = std::max(v_max, v[i]);
      const double denominator = std::sqrt(v[i]) * args.v_scale + args.eps;
      p[begin + i] = static_cast<float>(args.decay * p[begin + i] -
                                        args.step_size * m[i] / denominator);
    }
    m_scale = static_cast<float>(m_max);
    v_scale = static_cast<float>(v_max);
    for (int64_t i = 0; i < count; ++i) {
      m_codes[begin + i] = Encode(m[i], m_max);
      v_codes[begin + i] = EncodeSquare(v[i], v_max);
    }
  }
}

}  // namespace espalier::adamw8bit
