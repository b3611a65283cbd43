#include <cmath>

#include "espalier/ops/rms_norm/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/rms_norm/rms_norm_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/activations-inl.h"
#include "espalier/ops/column_sum-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::rms_norm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// What a kernel is compiled for.
enum class Gating { kNone, kSilu, kSigmoid };

template <class Args, class Function>
void WithGating(const Args& args, const Function& function) {
  if (!args.gate) {
    function.template operator()<Gating::kNone>();
  } else if (args.activation == NormGate::kSilu) {
    function.template operator()<Gating::kSilu>();
  } else {
    function.template operator()<Gating::kSigmoid>();
  }
}

template <Gating kGating, class Access, typename T>
HWY_INLINE Vector GateAt(const Access& io, const T* gate, int64_t h,
                         Vector& slope) {
  const F32Tag d;
  if constexpr (kGating == Gating::kSilu) {
    return Activate<Activation::kSilu, T>(d, io.Load(d, gate + h), slope);
  } else if constexpr (kGating == Gating::kSigmoid) {
    const auto s = SigmoidFor<T>(d, io.Load(d, gate + h));
    slope = hn::Mul(s, hn::Sub(hn::Set(d, 1.0f), s));
    return s;
  } else {
    return hn::Set(d, 1.0f);
  }
}

// ForEachPair and SumPairs over tensors of T; with a weight of another dtype W,
// which has an order of its own in pairs, ForEachVector and SumVectors.
template <typename T, typename W, class Access, class Body>
HWY_INLINE void ForEachOf(int64_t n, Access access, const Body& body) {
  if constexpr (sizeof(W) == sizeof(T)) {
    ForEachPair<T>(n, access, body);
  } else {
    ForEachVector(n, access, body);
  }
}
template <typename T, typename W, class Map>
HWY_INLINE float SumOf(int64_t n, const Map& map) {
  if constexpr (sizeof(W) == sizeof(T)) {
    return SumPairs<T>(n, map);
  } else {
    return SumVectors(n, map);
  }
}

// Calls function.operator()<W>() for the weight's dtype.
template <typename T, class Function>
void WithWeight(const View& weight, const Function& function) {
  if (sizeof(T) == 2 && weight.dtype == kF32) {
    function.template operator()<float>();
  } else {
    function.template operator()<T>();
  }
}

// What is added to the stored weight.
inline float OffsetOf(NormWeight form) {
  return form == NormWeight::kPlusOne ? 1.0f : 0.0f;
}

// Asks for the line at p of a row of x, which need not be mapped. Rows of f32
// as wide as a hidden state fill the first cache, so that it goes to the
// second, and each of the two passes over a row asks for half of the next:
// memory rests in neither.
HWY_INLINE void FetchHalf(const void* p) { __builtin_prefetch(p, 0, 2); }

template <typename T, typename W, Gating kGating>
void ForwardRows(const ForwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(-1);
  const W* weight = args.weight.data<const W>();
  const float offset = OffsetOf(args.form);
  const auto eps = static_cast<float>(args.eps);
  ParallelRows(
      exec, args.rstd.dim(0), width, args.y.pointer, sizeof(T),
      [&](int64_t t, auto access) {
        const F32Tag d;
        const T* x = args.x.data<const T>() + t * width;
        const T* gate =
            args.gate ? args.gate.data<const T>() + t * width : nullptr;
        T* y = args.y.data<T>() + t * width;
        const float sum = SumOf<T, W>(width, [&](int64_t h, auto io) {
          if constexpr (sizeof(T) == 4) FetchHalf(x + width + h / 2);
          const auto v = io.Load(d, x + h);
          return hn::Mul(v, v);
        });
        const float rstd =
            1.0f / std::sqrt(sum / static_cast<float>(width) + eps);
        args.rstd.data<float>()[t] = rstd;
        ForEachOf<T, W>(width, access, [&](int64_t h, auto io) {
          if constexpr (sizeof(T) == 4) {
            FetchHalf(x + width + (width + h) / 2);
          } else {
            io.Prefetch(x + width + h);
          }
          if constexpr (kGating != Gating::kNone) io.Prefetch(gate + width + h);
          const auto w = hn::Add(io.Load(d, weight + h), hn::Set(d, offset));
          auto v = hn::Mul(hn::Mul(io.Load(d, x + h), hn::Set(d, rstd)), w);
          if constexpr (kGating != Gating::kNone) {
            auto slope = hn::Zero(d);
            v = hn::Mul(v, GateAt<kGating>(io, gate, h, slope));
          }
          io.Store(d, v, y + h);
        });
      });
}

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  WithGating(args, [&]<Gating kGating>() {
    WithWeight<T>(args.weight, [&]<typename W>() {
      ForwardRows<T, W, kGating>(args, exec);
    });
  });
}

// dx and dgate of one row and, with `sums`, its part of dweight.
template <typename T, typename W, Gating kGating, class Access>
void BackwardRow(const BackwardArgs& args, int64_t t, float* sums,
                 const Access& access) {
  const F32Tag d;
  const int64_t width = args.x.dim(-1);
  const T* x = args.x.data<const T>() + t * width;
  const T* dy = args.dy.data<const T>() + t * width;
  const T* gate = args.gate ? args.gate.data<const T>() + t * width : nullptr;
  const W* weight = args.weight.data<const W>();
  T* dgate = args.dgate ? args.dgate.data<T>() + t * width : nullptr;
  const auto rstd = hn::Set(d, args.rstd.data<const float>()[t]);
  const auto offset = hn::Set(d, OffsetOf(args.form));
  const auto dot_term = [&](int64_t h, auto io) {
    auto slope = hn::Zero(d);
    const auto g = io.Load(d, dy + h);
    const auto a = GateAt<kGating>(io, gate, h, slope);
    const auto w = hn::Add(io.Load(d, weight + h), offset);
    const auto xv = io.Load(d, x + h);
    if (sums != nullptr) {
      const auto term = hn::Mul(hn::Mul(g, a), hn::Mul(xv, rstd));
      io.Store(d, hn::Add(io.Load(d, sums + h), term), sums + h);
    }
    if (dgate != nullptr) {
      io.Store(d, hn::Mul(hn::Mul(g, hn::Mul(xv, rstd)), hn::Mul(w, slope)),
               dgate + h);
    }
    return hn::Mul(hn::Mul(hn::Mul(g, a), w), xv);
  };
  // The sums of dweight are in the order of memory.
  const float dot = sums != nullptr ? SumVectors(width, dot_term)
                                    : SumOf<T, W>(width, dot_term);
  if (!args.dx) return;
  T* dx = args.dx.data<T>() + t * width;
  const auto scale = hn::Mul(hn::Mul(rstd, hn::Mul(rstd, rstd)),
                             hn::Set(d, dot / static_cast<float>(width)));
  ForEachOf<T, W>(width, access, [&](int64_t h, auto io) {
    io.Prefetch(x + width + h);
    io.Prefetch(dy + width + h);
    auto slope = hn::Zero(d);
    const auto w = hn::Add(io.Load(d, weight + h), offset);
    const auto g =
        hn::Mul(io.Load(d, dy + h), GateAt<kGating>(io, gate, h, slope));
    const auto norm = hn::Mul(io.Load(d, x + h), scale);
    io.Store(d, hn::MulSub(hn::Mul(g, w), rstd, norm), dx + h);
  });
}

template <typename T, typename W, Gating kGating>
void BackwardRows(const BackwardArgs& args, const Exec& exec) {
  const int64_t rows = args.rstd.dim(0);
  const int64_t width = args.x.dim(-1);
  if (!args.dweight) {
    ParallelRows(exec, rows, width, args.dx.pointer, sizeof(T),
                 [&](int64_t t, auto access) {
                   BackwardRow<T, W, kGating>(args, t, nullptr, access);
                 });
    return;
  }
  float* blocks = args.block_sums.data<float>();
  SumAndWriteRows(exec, rows, width, blocks, width, args.dx.pointer, sizeof(T),
                  [&](int64_t t, float* sums, auto access) {
                    BackwardRow<T, W, kGating>(args, t, sums, access);
                  });
  AddBlocks(exec, rows, width, blocks, args.dweight.data<W>());
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  WithGating(args, [&]<Gating kGating>() {
    WithWeight<T>(args.weight, [&]<typename W>() {
      BackwardRows<T, W, kGating>(args, exec);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::rms_norm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::rms_norm {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::rms_norm
#endif
