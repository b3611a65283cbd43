#include <algorithm>
#include <cmath>

#include "espalier/ops/rms_norm/internal/kernels.h"
#include "espalier/runtime/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/rms_norm/rms_norm_cpu.cc"
#include "espalier/ops/highway.h"

HWY_BEFORE_NAMESPACE();
namespace espalier::rms_norm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using espalier::HWY_NAMESPACE::LoadF32;
using espalier::HWY_NAMESPACE::LoadF32N;
using espalier::HWY_NAMESPACE::StoreF32;
using espalier::HWY_NAMESPACE::StoreF32N;
using F = hn::ScalableTag<float>;

template <typename T>
float SumOfSquares(const T* x, int64_t n) {
  const F d;
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = LoadF32(d, x + i);
    const auto b = LoadF32(d, x + i + lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  for (; i < n; i += lanes) {
    const auto a = LoadF32N(d, x + i, n - i);
    sum0 = hn::MulAdd(a, a, sum0);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(-1);
  exec.pool.ParallelFor(args.x.num_rows(), 16, [&](int64_t begin, int64_t end) {
    const F d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* weight = args.weight.data<const T>();
    for (int64_t t = begin; t < end; ++t) {
      const T* x = args.x.data<const T>() + t * width;
      T* y = args.y.data<T>() + t * width;
      const float mean = SumOfSquares(x, width) / static_cast<float>(width);
      const float rstd = 1.0f / std::sqrt(mean + static_cast<float>(args.eps));
      args.rstd.data<float>()[t] = rstd;
      const auto r = hn::Set(d, rstd);
      int64_t h = 0;
      for (; h + lanes <= width; h += lanes) {
        const auto scaled = hn::Mul(LoadF32(d, x + h), r);
        StoreF32(d, hn::Mul(scaled, LoadF32(d, weight + h)), y + h);
      }
      if (h < width) {
        const auto scaled = hn::Mul(LoadF32N(d, x + h, width - h), r);
        StoreF32N(d, hn::Mul(scaled, LoadF32N(d, weight + h, width - h)), y + h,
                  width - h);
      }
    }
  });
}

// dx of one row and, with `sums`, its part of dweight.
template <typename T>
void BackwardRow(const BackwardArgs& args, int64_t t, float* sums) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = args.x.dim(-1);
  const T* x = args.x.data<const T>() + t * width;
  const T* dy = args.dy.data<const T>() + t * width;
  const T* weight = args.weight.data<const T>();
  const float rstd = args.rstd.data<const float>()[t];
  if (sums != nullptr) {
    for (int64_t h = 0; h < width; h += lanes) {
      const int64_t n = width - h;
      const auto xhat = hn::Mul(LoadF32N(d, x + h, n), hn::Set(d, rstd));
      const auto sum =
          hn::MulAdd(LoadF32N(d, dy + h, n), xhat, LoadF32N(d, sums + h, n));
      StoreF32N(d, sum, sums + h, n);
    }
  }
  if (!args.dx) return;
  auto dot = hn::Zero(d);
  for (int64_t h = 0; h < width; h += lanes) {
    const int64_t n = width - h;
    const auto g = hn::Mul(LoadF32N(d, dy + h, n), LoadF32N(d, weight + h, n));
    dot = hn::MulAdd(g, LoadF32N(d, x + h, n), dot);
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, dot));
  const auto scale =
      hn::Set(d, total * rstd * rstd * rstd / static_cast<float>(width));
  T* dx = args.dx.data<T>() + t * width;
  for (int64_t h = 0; h < width; h += lanes) {
    const int64_t n = width - h;
    const auto g = hn::Mul(LoadF32N(d, dy + h, n), LoadF32N(d, weight + h, n));
    const auto value = hn::Sub(hn::Mul(g, hn::Set(d, rstd)),
                               hn::Mul(LoadF32N(d, x + h, n), scale));
    StoreF32N(d, value, dx + h, n);
  }
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  const int64_t rows = args.x.num_rows();
  const int64_t width = args.x.dim(-1);
  float* blocks = args.block_sums.data<float>();
  exec.pool.ParallelFor(NumBlocks(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float* sums = args.dweight ? blocks + block * width : nullptr;
      if (sums != nullptr) std::fill(sums, sums + width, 0.0f);
      const int64_t last = std::min(rows, (block + 1) * kBlockRows);
      for (int64_t t = block * kBlockRows; t < last; ++t) {
        BackwardRow<T>(args, t, sums);
      }
    }
  });
  if (!args.dweight) return;
  T* dweight = args.dweight.data<T>();
  for (int64_t h = 0; h < width; ++h) {
    float sum = 0;
    for (int64_t block = 0; block < NumBlocks(rows); ++block) {
      sum += blocks[block * width + h];
    }
    dweight[h] = T(sum);
  }
}

void ForwardF32(const ForwardArgs& args, const Exec& exec) {
  Forward<float>(args, exec);
}
void ForwardBF16(const ForwardArgs& args, const Exec& exec) {
  Forward<BFloat16>(args, exec);
}
void BackwardF32(const BackwardArgs& args, const Exec& exec) {
  Backward<float>(args, exec);
}
void BackwardBF16(const BackwardArgs& args, const Exec& exec) {
  Backward<BFloat16>(args, exec);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::rms_norm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::rms_norm {

void ForwardCpuF32(const ForwardArgs& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, ForwardF32)(args, exec);
}
void ForwardCpuBF16(const ForwardArgs& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, ForwardBF16)(args, exec);
}
void BackwardCpuF32(const BackwardArgs& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, BackwardF32)(args, exec);
}
void BackwardCpuBF16(const BackwardArgs& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, BackwardBF16)(args, exec);
}

}  // namespace espalier::rms_norm
#endif
