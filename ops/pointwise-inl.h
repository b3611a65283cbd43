// Loops over contiguous memory, one vector of f32 lanes at a time. A body is
// written once and run with three ways of access:
//   ForEachVector(n, [&](int64_t i, auto io) {
//     io.Store(d, hn::Add(io.Load(d, a + i), io.Load(d, b + i)), y + i);
//   });
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

// A whole vector.
struct WholeAccess {
  // v with `fill` in the lanes that stand for no element.
  template <class D>
  HWY_INLINE hn::Vec<D> Keep(D, hn::Vec<D> v, float) const {
    return v;
  }
  template <class D, typename T>
  HWY_INLINE hn::Vec<D> Load(D d, const T* p) const {
    return LoadF32(d, p);
  }
  template <class D, typename T>
  HWY_INLINE void Store(D d, hn::Vec<D> v, T* p) const {
    StoreF32(d, v, p);
  }
};

// A whole vector, written past the caches to aligned memory.
struct StreamAccess : WholeAccess {
  template <class D, typename T>
  HWY_INLINE void Store(D d, hn::Vec<D> v, T* p) const {
    StreamF32(d, v, p);
  }
};

// The last `count` elements; zeros are read beyond.
struct PartAccess {
  int64_t count;
  template <class D>
  HWY_INLINE hn::Vec<D> Keep(D d, hn::Vec<D> v, float fill) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), v,
                          hn::Set(d, fill));
  }
  template <class D, typename T>
  HWY_INLINE hn::Vec<D> Load(D d, const T* p) const {
    return LoadF32N(d, p, count);
  }
  template <class D, typename T>
  HWY_INLINE void Store(D d, hn::Vec<D> v, T* p) const {
    StoreF32N(d, v, p, count);
  }
};

// body(i, access) for i = 0, lanes, 2 * lanes, ... below n.
template <class Access, class Body>
HWY_INLINE void ForEachVector(int64_t n, Access access, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32Tag()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, access);
  if (i < n) body(i, PartAccess{n - i});
}

template <class Body>
HWY_INLINE void ForEachVector(int64_t n, const Body& body) {
  ForEachVector(n, WholeAccess(), body);
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

// The sum of map(i, access) over [0, n).
template <class Map>
HWY_INLINE float SumVectors(int64_t n, const Map& map) {
  const F32Tag d;
  return hn::GetLane(hn::SumOfLanes(
      d, FoldVectors(
             n, 0.0f, [](auto a, auto b) { return hn::Add(a, b); }, map)));
}

// The largest element of map(i, access) over [0, n); -infinity for none.
template <class Map>
HWY_INLINE float MaxVectors(int64_t n, const Map& map) {
  const F32Tag d;
  return hn::GetLane(hn::MaxOfLanes(
      d, FoldVectors(
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
  exec.pool.ParallelFor(n, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    if (streams) {
      chunk(begin, end - begin, StreamAccess());
      hwy::FlushStream();
    } else {
      chunk(begin, end - begin, WholeAccess());
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
  exec.pool.ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    if (streams) {
      for (int64_t t = begin; t < end; ++t) row(t, StreamAccess());
      hwy::FlushStream();
    } else {
      for (int64_t t = begin; t < end; ++t) row(t, WholeAccess());
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_POINTWISE_INL_H_
