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

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_POINTWISE_INL_H_
