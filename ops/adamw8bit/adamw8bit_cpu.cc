#include <algorithm>
#include <limits>

#include "espalier/ops/adamw8bit/adamw8bit.h"
#include "espalier/ops/adamw8bit/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/adamw8bit/adamw8bit_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::adamw8bit {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

constexpr int64_t kBlock = AdamW8BitMoments::kBlock;

// A vector of codes as f32 lanes.
HWY_INLINE hn::Vec<F32Tag> LoadCodes(const uint8_t* codes) {
  const hn::Rebind<uint8_t, F32Tag> d8;
  const hn::Rebind<int32_t, F32Tag> d32;
  return hn::ConvertTo(F32Tag(), hn::PromoteTo(d32, hn::LoadU(d8, codes)));
}

// The nearest whole numbers, of v in [0, 255].
HWY_INLINE void StoreCodes(hn::Vec<F32Tag> v, uint8_t* codes) {
  const hn::Rebind<uint8_t, F32Tag> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(v)), d8, codes);
}

#if HWY_TARGET == HWY_AVX3
// 1 / sqrt(v), relative error 2^-14.
HWY_INLINE hn::Vec<F32Tag> RootEstimate(hn::Vec<F32Tag> v) {
  return hn::Vec<F32Tag>{_mm512_rsqrt14_ps(v.raw)};
}
#endif

// v^(1/4) for v in [0, 1], of which those below 1e-30 count as that. Relative
// error 3e-7. Where a square root takes ten times as long as a product, by a
// Newton step for v^(-1/4).
HWY_INLINE hn::Vec<F32Tag> FourthRoot(hn::Vec<F32Tag> v) {
  const F32Tag d;
  v = hn::Max(v, hn::Set(d, 1e-30f));
#if HWY_TARGET == HWY_AVX3
  auto z = RootEstimate(hn::Mul(v, RootEstimate(v)));
  auto z2 = hn::Mul(z, z);
  const auto error = hn::NegMulAdd(hn::Mul(v, z2), z2, hn::Set(d, 1.0f));
  z = hn::MulAdd(hn::Mul(z, hn::Set(d, 0.25f)), error, z);
  z2 = hn::Mul(z, z);
  return hn::Mul(hn::Mul(v, z), z2);
#else
  return hn::Sqrt(hn::Sqrt(v));
#endif
}

// v^(1/8) likewise.
HWY_INLINE hn::Vec<F32Tag> EighthRoot(hn::Vec<F32Tag> v) {
  const F32Tag d;
  v = hn::Max(v, hn::Set(d, 1e-30f));
#if HWY_TARGET == HWY_AVX3
  auto z = RootEstimate(RootEstimate(RootEstimate(v)));  // v^(-1/8)
  auto z2 = hn::Mul(z, z);
  auto z4 = hn::Mul(z2, z2);
  const auto error = hn::NegMulAdd(hn::Mul(v, z4), z4, hn::Set(d, 1.0f));
  z = hn::MulAdd(hn::Mul(z, hn::Set(d, 0.125f)), error, z);
  z2 = hn::Mul(z, z);
  z4 = hn::Mul(z2, z2);
  return hn::Mul(hn::Mul(v, z), hn::Mul(z2, z4));
#else
  return hn::Sqrt(hn::Sqrt(hn::Sqrt(v)));
#endif
}

// 1 / scale, finite also for 0 and subnormal scales.
HWY_INLINE hn::Vec<F32Tag> Inverse(float scale) {
  return hn::Set(F32Tag(),
                 1 / std::max(scale, std::numeric_limits<float>::min()));
}

// One block that lies wholly in memory, its moments in m and v meanwhile.
void UpdateBlock(const Args& args, float* p, const float* gradient,
                 uint8_t* m_codes, uint8_t* v_codes, float& m_scale,
                 float& v_scale) {
  const F32Tag d;
  alignas(64) float m[kBlock];
  alignas(64) float v[kBlock];
  const auto set = [&](double x) { return hn::Set(d, static_cast<float>(x)); };
  const WholeAccess io;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto m_max = hn::Zero(d);
  auto v_max = hn::Zero(d);
  for (int64_t i = 0; i < kBlock; i += lanes) {
    const auto g = hn::Mul(io.Load(d, gradient + i), set(args.gradient_scale));
    const auto s =
        hn::Mul(hn::Sub(LoadCodes(m_codes + i), set(128)), set(1 / 127.0));
    const auto s2 = hn::Mul(s, s);
    const auto old_m =
        hn::Mul(hn::CopySign(hn::Mul(s2, s2), s), hn::Set(d, m_scale));
    const auto r = hn::Mul(LoadCodes(v_codes + i), set(1 / 255.0));
    const auto r2 = hn::Mul(r, r);
    const auto r4 = hn::Mul(r2, r2);
    const auto old_v = hn::Mul(hn::Mul(r4, r4), hn::Set(d, v_scale));
    const auto new_m =
        hn::MulAdd(set(args.beta1), old_m, hn::Mul(set(1 - args.beta1), g));
    const auto new_v = hn::MulAdd(set(args.beta2), old_v,
                                  hn::Mul(set(1 - args.beta2), hn::Mul(g, g)));
    m_max = hn::Max(m_max, hn::Abs(new_m));
    v_max = hn::Max(v_max, new_v);
    io.Store(d, new_m, m + i);
    io.Store(d, new_v, v + i);
    const auto denominator =
        hn::MulAdd(hn::Sqrt(new_v), set(args.v_scale), set(args.eps));
    const auto change =
        hn::Div(hn::Mul(set(args.step_size), new_m), denominator);
    io.Store(d, hn::Sub(hn::Mul(set(args.decay), io.Load(d, p + i)), change),
             p + i);
  }
  m_scale = hn::GetLane(hn::MaxOfLanes(d, m_max));
  v_scale = hn::GetLane(hn::MaxOfLanes(d, v_max));
  const auto m_factor = Inverse(m_scale);
  const auto v_factor = Inverse(v_scale);
  for (int64_t i = 0; i < kBlock; i += lanes) {
    const auto mi = io.Load(d, m + i);
    const auto root = FourthRoot(hn::Mul(hn::Abs(mi), m_factor));
    StoreCodes(hn::MulAdd(hn::CopySign(root, mi), set(127), set(128)),
               m_codes + i);
    const auto vi = io.Load(d, v + i);
    const auto eighth = EighthRoot(hn::Mul(vi, v_factor));
    const auto code = hn::Max(hn::Mul(eighth, set(255)), set(1));
    StoreCodes(hn::IfThenZeroElse(hn::Eq(vi, hn::Zero(d)), code), v_codes + i);
  }
}

// The last block, in a copy that is filled up with elements that stay 0.
void UpdatePart(const Args& args, int64_t count, float* p,
                const float* gradient, uint8_t* m_codes, uint8_t* v_codes,
                float& m_scale, float& v_scale) {
  float block_p[kBlock] = {};
  float block_gradient[kBlock] = {};
  uint8_t block_m[kBlock];
  uint8_t block_v[kBlock] = {};
  std::fill(block_m, block_m + kBlock, uint8_t{128});
  std::copy(p, p + count, block_p);
  std::copy(gradient, gradient + count, block_gradient);
  std::copy(m_codes, m_codes + count, block_m);
  std::copy(v_codes, v_codes + count, block_v);
  UpdateBlock(args, block_p, block_gradient, block_m, block_v, m_scale,
              v_scale);
  std::copy(block_p, block_p + count, p);
  std::copy(block_m, block_m + count, m_codes);
  std::copy(block_v, block_v + count, v_codes);
}

void Update(const Args& args, const Exec& exec) {
  const int64_t n = args.parameter.num_elements();
  static_assert(kPointwiseGrain % kBlock == 0);
  exec.pool.ParallelFor(n, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kBlock) {
      float* p = args.parameter.data<float>() + at;
      const float* gradient = args.gradient.data<const float>() + at;
      uint8_t* m_codes = args.m_codes.data<uint8_t>() + at;
      uint8_t* v_codes = args.v_codes.data<uint8_t>() + at;
      float& m_scale = args.m_scales.data<float>()[at / kBlock];
      float& v_scale = args.v_scales.data<float>()[at / kBlock];
      if (end - at >= kBlock) {
        UpdateBlock(args, p, gradient, m_codes, v_codes, m_scale, v_scale);
      } else {
        UpdatePart(args, end - at, p, gradient, m_codes, v_codes, m_scale,
                   v_scale);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::adamw8bit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::adamw8bit {

void Cpu(const Args& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, Update)(args, exec);
}

}  // namespace espalier::adamw8bit
#endif
