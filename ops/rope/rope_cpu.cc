#include <algorithm>
#include <cmath>

#include "espalier/ops/rope/internal/kernels.h"
#include "espalier/runtime/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/rope/rope_cpu.cc"
#include "espalier/ops/highway.h"

HWY_BEFORE_NAMESPACE();
namespace espalier::rope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using espalier::HWY_NAMESPACE::LoadF32N;
using espalier::HWY_NAMESPACE::StoreF32N;
using F = hn::ScalableTag<float>;

// Cosines and sines of one token, signed for the direction.
void FillTable(const Args& args, int64_t t, float* cosine, float* sine) {
  const int64_t pairs = args.frequencies.dim(0);
  const double position = args.positions.data<const int32_t>()[t];
  const double* frequencies = args.frequencies.data<const double>();
  const double sign =
      args.backward ? -args.attention_factor : args.attention_factor;
  for (int64_t i = 0; i < pairs; ++i) {
    const double angle = position * frequencies[i];
    cosine[i] = static_cast<float>(std::cos(angle) * args.attention_factor);
    sine[i] = static_cast<float>(std::sin(angle) * sign);
  }
}

template <typename T>
void TurnHalves(const T* x, const float* cosine, const float* sine,
                int64_t pairs, T* y) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < pairs; i += lanes) {
    const int64_t n = pairs - i;
    const auto a = LoadF32N(d, x + i, n);
    const auto b = LoadF32N(d, x + pairs + i, n);
    const auto c = LoadF32N(d, cosine + i, n);
    const auto s = LoadF32N(d, sine + i, n);
    StoreF32N(d, hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), y + i, n);
    StoreF32N(d, hn::Add(hn::Mul(b, c), hn::Mul(a, s)), y + pairs + i, n);
  }
}

template <typename T>
void TurnNeighbours(const T* x, const float* cosine, const float* sine,
                    int64_t pairs, T* y) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = static_cast<float>(x[2 * i]);
    const float b = static_cast<float>(x[2 * i + 1]);
    y[2 * i] = static_cast<T>(a * cosine[i] - b * sine[i]);
    y[2 * i + 1] = static_cast<T>(b * cosine[i] + a * sine[i]);
  }
}

template <typename T>
void Turn(const Args& args, const Exec& exec) {
  const int64_t heads = args.x.dim(1);
  const int64_t width = args.x.dim(2);
  const int64_t pairs = args.frequencies.dim(0);
  exec.pool.ParallelFor(args.x.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* cosine = args.tables.data<float>() + t * 2 * pairs;
      float* sine = cosine + pairs;
      FillTable(args, t, cosine, sine);
      for (int64_t n = 0; n < heads; ++n) {
        const T* x = args.x.data<const T>() + (t * heads + n) * width;
        T* y = args.y.data<T>() + (t * heads + n) * width;
        if (args.interleaved) {
          TurnNeighbours(x, cosine, sine, pairs, y);
        } else {
          TurnHalves(x, cosine, sine, pairs, y);
        }
        std::copy(x + 2 * pairs, x + width, y + 2 * pairs);
      }
    }
  });
}

void TurnF32(const Args& args, const Exec& exec) { Turn<float>(args, exec); }
void TurnBF16(const Args& args, const Exec& exec) {
  Turn<BFloat16>(args, exec);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::rope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::rope {

void CpuF32(const Args& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, TurnF32)(args, exec);
}
void CpuBF16(const Args& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, TurnBF16)(args, exec);
}

}  // namespace espalier::rope
#endif
