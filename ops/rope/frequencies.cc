#include <algorithm>
#include <cmath>

#include "espalier/ops/rope/rope.h"

namespace espalier {

namespace {

constexpr double kPi = 3.14159265358979323846;

double Llama3(double frequency, const RopeOptions& o) {
  const double wavelength = 2 * kPi / frequency;
  const double original = o.original_max_position_embeddings;
  if (wavelength > original / o.low_freq_factor) return frequency / o.factor;
  if (wavelength < original / o.high_freq_factor) return frequency;
  const double smooth = (original / wavelength - o.low_freq_factor) /
                        (o.high_freq_factor - o.low_freq_factor);
  return frequency * ((1 - smooth) / o.factor + smooth);
}

// The pair whose wavelength makes `turns` turns over the original length.
double YarnPair(double turns, const RopeOptions& o) {
  return static_cast<double>(o.rotary_dim) *
         std::log(o.original_max_position_embeddings / (2 * kPi * turns)) /
         (2 * std::log(o.theta));
}

void Yarn(std::vector<double>& frequencies, const RopeOptions& o) {
  double low = YarnPair(o.beta_fast, o);
  double high = YarnPair(o.beta_slow, o);
  if (o.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(o.rotary_dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp =
        std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] =
        frequencies[i] / o.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double YarnScale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeOptions& options) {
  std::vector<double> frequencies(static_cast<size_t>(options.rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] =
        std::pow(options.theta, -2 * static_cast<double>(i) /
                                    static_cast<double>(options.rotary_dim));
  }
  switch (options.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& f : frequencies) f /= options.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& f : frequencies) f = Llama3(f, options);
      break;
    case RopeScaling::kYarn:
      Yarn(frequencies, options);
      break;
  }
  return frequencies;
}

double RopeAttentionFactor(const RopeOptions& options) {
  if (options.scaling != RopeScaling::kYarn) return 1;
  if (options.attention_factor != 0) return options.attention_factor;
  if (options.mscale != 0 && options.mscale_all_dim != 0) {
    return YarnScale(options.factor, options.mscale) /
           YarnScale(options.factor, options.mscale_all_dim);
  }
  return YarnScale(options.factor, 1);
}

}  // namespace espalier
