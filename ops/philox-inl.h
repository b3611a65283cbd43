// Philox4x32-10 (runtime/rng.h) of several counters at once. Included once per
// instruction set, after ops/highway.h.

#if defined(ESPALIER_OPS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_OPS_PHILOX_INL_H_
#undef ESPALIER_OPS_PHILOX_INL_H_
#else
#define ESPALIER_OPS_PHILOX_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "espalier/runtime/rng.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// rng.BitsBatch(index, bits). A counter is a 64-bit lane: each of its words has
// the lower half, and what is in the upper half does not matter, for the
// products read the lower alone and leave the next two words as their halves.
inline void BitsBatch(const Rng& rng, uint64_t index,
                      uint32_t (&bits)[Rng::kBatch]) {
  const hn::ScalableTag<uint64_t> d64;
  const hn::RepartitionToNarrow<decltype(d64)> d32;
  using Words = hn::Vec<decltype(d64)>;
  constexpr int kTogether = 4;  // independent chains
  constexpr uint64_t kCounters = Rng::kBatch / 4;
  const uint64_t lanes = hn::Lanes(d64);
  const auto factor0 = hn::Set(d32, static_cast<uint32_t>(kPhilox0));
  const auto factor1 = hn::Set(d32, static_cast<uint32_t>(kPhilox1));
  const auto low = hn::Set(d64, 0xffffffffu);
  // The first half of the counters in the even lanes, the others in the odd:
  // then the blocks come out in order.
  const auto lane = hn::Iota(d64, 0);
  const auto order =
      hn::Add(hn::ShiftRight<1>(lane),
              hn::And(hn::Sub(hn::Zero(d64), hn::And(lane, hn::Set(d64, 1))),
                      hn::Set(d64, lanes / 2)));
  for (uint64_t base = 0; base < kCounters; base += kTogether * lanes) {
    Words c0[kTogether], c1[kTogether], c2[kTogether], c3[kTogether];
    for (int k = 0; k < kTogether; ++k) {
      c0[k] =
          hn::Add(order, hn::Set(d64, index * kCounters + base +
                                          static_cast<uint64_t>(k) * lanes));
      c1[k] = hn::ShiftRight<32>(c0[k]);
      c2[k] = hn::Set(d64, rng.stream);
      c3[k] = hn::Set(d64, rng.stream >> 32);
    }
    auto key0 = static_cast<uint32_t>(rng.seed);
    auto key1 = static_cast<uint32_t>(rng.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto k0 = hn::Set(d64, key0);
      const auto k1 = hn::Set(d64, key1);
      for (int k = 0; k < kTogether; ++k) {
        const auto a = hn::MulEven(hn::BitCast(d32, c0[k]), factor0);
        const auto b = hn::MulEven(hn::BitCast(d32, c2[k]), factor1);
        c0[k] = hn::Xor3(hn::ShiftRight<32>(b), c1[k], k0);
        c1[k] = b;
        c2[k] = hn::Xor3(hn::ShiftRight<32>(a), c3[k], k1);
        c3[k] = a;
      }
      key0 += kPhiloxKey0;
      key1 += kPhiloxKey1;
    }
    for (int k = 0; k < kTogether; ++k) {
      const auto first = hn::Or(hn::And(c0[k], low), hn::ShiftLeft<32>(c1[k]));
      const auto second = hn::Or(hn::And(c2[k], low), hn::ShiftLeft<32>(c3[k]));
      uint32_t* const to = bits + 4 * (base + static_cast<uint64_t>(k) * lanes);
      hn::StoreU(hn::BitCast(d32, hn::InterleaveLower(d64, first, second)), d32,
                 to);
      hn::StoreU(hn::BitCast(d32, hn::InterleaveUpper(d64, first, second)), d32,
                 to + 2 * lanes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_PHILOX_INL_H_
