// Loops over contiguous memory, one vector of f32 lanes at a time. A body is
// written once and run with three ways of access:
//   ForEachVector(n, [&](int64_t i, auto io) {
//     io.Store(d, hn::Add(io.Load(d, a + i), io.Load(d, b + i)), y + i);
//   });
// ForEachPair and FoldPairs are the same for bodies whose tensors are all of
// one dtype T: of bf16 they then take 32 elements at a time, the even ones
// first and the odd ones next, which needs no shuffle on the way in and one on
// the way out. f32 memory is then scratch of the body's own, in that order.
// Included once per instruction set, after ops/highway.h.

#if defined(ESPALIER_OPS_POINTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_OPS_POINTWISE_INL_H_
#undef ESPALIER_OPS_POINTWISE_INL_H_
#else
#define ESPALIER_OPS_POINTWISE_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "espalier/ops/highway-inl.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

using F32Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<F32Tag>;
constexpr int64_t Lanes() { return hn::MaxLanes(F32Tag()); }

// Whether bf16 stores may use the CPU's own rounding (ops/highway-inl.h).
inline bool RoundsNatively(const Exec& exec) {
  return exec.isa == Isa::kAvx512Bf16;
}

// A whole vector.
struct WholeAccess {
  static constexpr bool kStreams = false;
  bool native = false;
  // v with `fill` in the lanes that stand for no element.
  template <class D>
  HWY_INLINE hn::Vec<D> Keep(D, hn::Vec<D> v, float) const {
    return v;
  }
  // Asks for the line at p, which need not be mapped, to come near. A row-wise
  // kernel asks for the row after its own while it computes; otherwise memory
  // would rest in every pass but the first.
  HWY_INLINE void Prefetch(const void* p) const { __builtin_prefetch(p, 0, 3); }
  template <class D, typename T>
  HWY_INLINE hn::Vec<D> Load(D d, const T* p) const {
    return LoadF32(d, p);
  }
  template <class D, typename T>
  HWY_INLINE void Store(D d, hn::Vec<D> v, T* p) const {
    StoreF32(d, v, p, native);
  }
};

// A whole vector, written past the caches to aligned memory.
struct StreamAccess : WholeAccess {
  static constexpr bool kStreams = true;
  template <class D, typename T>
  HWY_INLINE void Store(D d, hn::Vec<D> v, T* p) const {
    StreamF32(d, v, p, native);
  }
};

// The last `count` elements; zeros are read beyond.
struct PartAccess {
  int64_t count;
  bool native = false;
  template <class D>
  HWY_INLINE hn::Vec<D> Keep(D d, hn::Vec<D> v, float fill) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), v,
                          hn::Set(d, fill));
  }
  HWY_INLINE void Prefetch(const void*) const {}
  template <class D, typename T>
  HWY_INLINE hn::Vec<D> Load(D d, const T* p) const {
    return LoadF32N(d, p, count);
  }
  template <class D, typename T>
  HWY_INLINE void Store(D d, hn::Vec<D> v, T* p) const {
    StoreF32N(d, v, p, count, native);
  }
};

// body(i, access) for i = 0, lanes, 2 * lanes, ... below n.
template <class Access, class Body>
HWY_INLINE void ForEachVector(int64_t n, Access access, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32Tag()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, access);
  if (i < n) body(i, PartAccess{n - i, access.native});
}

template <class Body>
HWY_INLINE void ForEachVector(int64_t n, const Body& body) {
  ForEachVector(n, WholeAccess(), body);
}

#if HWY_TARGET == HWY_AVX3
// The elements 0, 2, .. 30 of 32 bf16; the first pass of a pair. What the body
// stores waits in `held` for the second.
struct EvenAccess {
  Vector* held;
  int64_t count = 0;

  HWY_INLINE void Prefetch(const void* p) const { __builtin_prefetch(p, 0, 3); }
  HWY_INLINE Vector Load(F32Tag d, const BFloat16* p) const {
    const hn::RebindToUnsigned<F32Tag> du;
    const auto word = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
    return hn::BitCast(d, hn::ShiftLeft<16>(word));
  }
  HWY_INLINE Vector Load(F32Tag d, const float* p) const {
    return hn::LoadU(d, p);
  }
  HWY_INLINE void Store(F32Tag, Vector v, BFloat16*) { held[count++] = v; }
  HWY_INLINE void Store(F32Tag d, Vector v, float* p) const {
    hn::StoreU(v, d, p);
  }
};

// The elements 1, 3, .. 31, after an EvenAccess over the same body; writes both
// passes as `Access` would.
template <class Access>
struct OddAccess {
  const Vector* held;
  bool native;
  int64_t count = 0;

  HWY_INLINE void Prefetch(const void*) const {}
  HWY_INLINE Vector Load(F32Tag d, const BFloat16* p) const {
    const hn::RebindToUnsigned<F32Tag> du;
    const auto word = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
    return hn::BitCast(d, hn::And(word, hn::Set(du, 0xffff0000u)));
  }
  HWY_INLINE Vector Load(F32Tag d, const float* p) const {
    return hn::LoadU(d, p + hn::MaxLanes(d));
  }
  HWY_INLINE void Store(F32Tag d, Vector v, BFloat16* p) {
    const hn::Repartition<uint16_t, F32Tag> d16;
    const auto pair = RoundPairToBF16(held[count++], v, native);
    if constexpr (Access::kStreams) {
      hn::Stream(pair, d16, reinterpret_cast<uint16_t*>(p));
    } else {
      hn::StoreU(pair, d16, reinterpret_cast<uint16_t*>(p));
    }
    (void)d;
  }
  HWY_INLINE void Store(F32Tag d, Vector v, float* p) const {
    hn::StoreU(v, d, p + hn::MaxLanes(d));
  }
};
#endif

// Tensors of bf16 that one body of ForEachPair may write.
inline constexpr int kMaxPairOutputs = 4;

// ForEachVector over tensors that are all of T.
template <typename T, class Access, class Body>
HWY_INLINE void ForEachPair(int64_t n, Access access, const Body& body) {
  int64_t done = 0;
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(T) == 2) {
    const F32Tag d;
    constexpr int64_t kElements = 2 * hn::MaxLanes(d);
    for (; done + kElements <= n; done += kElements) {
      hn::Vec<F32Tag> held[kMaxPairOutputs];
      EvenAccess even{held};
      OddAccess<Access> odd{held, access.native};
      body(done, even);
      body(done, odd);
    }
  }
#endif
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32Tag()));
  for (; done + lanes <= n; done += lanes) body(done, access);
  if (done < n) body(done, PartAccess{n - done, access.native});
}

// combine over all of map(i, access) for the vectors of [0, n), in four chains
// that are joined in order; lanes that stand for no element are `start`.
template <class Combine, class Map>
HWY_INLINE hn::Vec<F32Tag> FoldVectors(int64_t n, float start,
                                       const Combine& combine, const Map& map) {
  const F32Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a0 = hn::Set(d, start);
  auto a1 = a0;
  auto a2 = a0;
  auto a3 = a0;
  int64_t i = 0;
  const WholeAccess whole;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a0 = combine(a0, map(i, whole));
    a1 = combine(a1, map(i + lanes, whole));
    a2 = combine(a2, map(i + 2 * lanes, whole));
    a3 = combine(a3, map(i + 3 * lanes, whole));
  }
  for (; i + lanes <= n; i += lanes) a0 = combine(a0, map(i, whole));
  if (i < n) {
    const PartAccess part{n - i};
    a1 = combine(a1, part.Keep(d, map(i, part), start));
  }
  return combine(combine(a0, a1), combine(a2, a3));
}

// FoldVectors over tensors that are all of T.
template <typename T, class Combine, class Map>
HWY_INLINE hn::Vec<F32Tag> FoldPairs(int64_t n, float start,
                                     const Combine& combine, const Map& map) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(T) == 2) {
    const F32Tag d;
    constexpr int64_t kElements = 2 * hn::MaxLanes(d);
    auto a0 = hn::Set(d, start);
    auto a1 = a0;
    auto a2 = a0;
    auto a3 = a0;
    int64_t i = 0;
    hn::Vec<F32Tag> held[kMaxPairOutputs];
    EvenAccess even{held};
    OddAccess<WholeAccess> odd{held, false};
    for (; i + 2 * kElements <= n; i += 2 * kElements) {
      a0 = combine(a0, map(i, even));
      a1 = combine(a1, map(i, odd));
      a2 = combine(a2, map(i + kElements, even));
      a3 = combine(a3, map(i + kElements, odd));
    }
    if (i + kElements <= n) {
      a0 = combine(a0, map(i, even));
      a1 = combine(a1, map(i, odd));
      i += kElements;
    }
    // At most 31 more.
    const WholeAccess whole;
    if (i + kElements / 2 <= n) {
      a2 = combine(a2, map(i, whole));
      i += kElements / 2;
    }
    if (i < n) {
      const PartAccess part{n - i};
      a3 = combine(a3, part.Keep(d, map(i, part), start));
    }
    return combine(combine(a0, a1), combine(a2, a3));
  }
#endif
  return FoldVectors(n, start, combine, map);
}

// The sum of map(i, access) over [0, n).
template <class Map>
HWY_INLINE float SumVectors(int64_t n, const Map& map) {
  const F32Tag d;
  return hn::GetLane(hn::SumOfLanes(
      d, FoldVectors(
             n, 0.0f, [](auto a, auto b) { return hn::Add(a, b); }, map)));
}

template <typename T, class Map>
HWY_INLINE float SumPairs(int64_t n, const Map& map) {
  const F32Tag d;
  return hn::GetLane(hn::SumOfLanes(
      d, FoldPairs<T>(
             n, 0.0f, [](auto a, auto b) { return hn::Add(a, b); }, map)));
}

// The largest element of map(i, access) over [0, n), tensors of T; -infinity
// for none.
template <typename T, class Map>
HWY_INLINE float MaxPairs(int64_t n, const Map& map) {
  const F32Tag d;
  return hn::GetLane(hn::MaxOfLanes(
      d, FoldPairs<T>(
             n, -std::numeric_limits<float>::infinity(),
             [](auto a, auto b) { return hn::Max(a, b); }, map)));
}

// Whether every chunk of kPointwiseGrain elements that starts at p may be
// streamed.
inline bool Streams(const void* p, int64_t bytes) {
  return bytes >= kStreamBytes && reinterpret_cast<uintptr_t>(p) % 64 == 0;
}

// chunk(begin, count, access) over [0, n) in parallel. `streams` tells that
// every output of the body may be streamed.
template <class Chunk>
void ParallelPointwise(const Exec& exec, int64_t n, bool streams,
                       const Chunk& chunk) {
  const bool native = RoundsNatively(exec);
  exec.pool.ParallelFor(n, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    if (streams) {
      chunk(begin, end - begin, StreamAccess{{native}});
      hwy::FlushStream();
    } else {
      chunk(begin, end - begin, WholeAccess{native});
    }
  });
}

// Whether every row of [rows, width] elements may be streamed: rows of part of
// a cache line are not.
inline bool StreamsRows(const void* p, int64_t rows, int64_t width,
                        int64_t element_bytes) {
  return Streams(p, rows * width * element_bytes) &&
         width * element_bytes % 64 == 0;
}

// row(t, access) for the rows [0, rows) of `width` elements, in parallel;
// `out` is the output that may be streamed.
template <class Row>
void ParallelRows(const Exec& exec, int64_t rows, int64_t width,
                  const void* out, int64_t element_bytes, const Row& row) {
  const bool streams = StreamsRows(out, rows, width, element_bytes);
  const bool native = RoundsNatively(exec);
  exec.pool.ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    if (streams) {
      for (int64_t t = begin; t < end; ++t) row(t, StreamAccess{{native}});
      hwy::FlushStream();
    } else {
      for (int64_t t = begin; t < end; ++t) row(t, WholeAccess{native});
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_POINTWISE_INL_H_
