#include "espalier/runtime/internal/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "espalier/runtime/thread_pool.h"

namespace espalier::internal {

namespace {

constexpr int64_t kBytesPerChunk = 1 << 16;

// The dims of a view without those of extent 1, neighbours merged where one
// stride serves both.
struct Layout {
  int ndim = 0;
  int64_t shape[kMaxDims] = {};
  int64_t strides[kMaxDims] = {};
};

Layout Simplify(const View& view) {
  Layout layout;
  for (int d = 0; d < view.ndim; ++d) {
    if (view.shape[d] == 1) continue;
    const int last = layout.ndim - 1;
    if (last >= 0 && layout.strides[last] == view.strides[d] * view.shape[d]) {
      layout.shape[last] *= view.shape[d];
      layout.strides[last] = view.strides[d];
      continue;
    }
    layout.shape[layout.ndim] = view.shape[d];
    layout.strides[layout.ndim] = view.strides[d];
    ++layout.ndim;
  }
  if (layout.ndim == 0) {
    layout.ndim = 1;
    layout.shape[0] = layout.strides[0] = 1;
  }
  return layout;
}

// Rows are runs of the innermost dim. T stands for any dtype of its size.
template <typename T>
void PackRows(const Layout& layout, const T* from, T* to, int64_t begin,
              int64_t end) {
  const int inner = layout.ndim - 1;
  const int64_t length = layout.shape[inner];
  const int64_t stride = layout.strides[inner];
  int64_t index[kMaxDims] = {};
  int64_t offset = 0;
  for (int64_t d = inner - 1, rest = begin; d >= 0; --d) {
    index[d] = rest % layout.shape[d];
    rest /= layout.shape[d];
    offset += index[d] * layout.strides[d];
  }
  for (int64_t row = begin; row < end; ++row) {
    const T* const source = from + offset;
    T* const target = to + row * length;
    if (stride == 1) {
      std::memcpy(target, source, static_cast<size_t>(length) * sizeof(T));
    } else {
      for (int64_t i = 0; i < length; ++i) target[i] = source[i * stride];
    }
    for (int d = inner - 1; d >= 0; --d) {
      offset += layout.strides[d];
      if (++index[d] < layout.shape[d]) break;
      offset -= layout.strides[d] * layout.shape[d];
      index[d] = 0;
    }
  }
}

template <typename T>
void Pack(const PackArgs& args, const Exec& exec) {
  const int64_t num_elements = args.from.num_elements();
  if (num_elements == 0) return;
  const Layout layout = Simplify(args.from);
  const int64_t length = layout.shape[layout.ndim - 1];
  const int64_t row_bytes = length * static_cast<int64_t>(sizeof(T));
  exec.pool.ParallelFor(
      num_elements / length, std::max<int64_t>(1, kBytesPerChunk / row_bytes),
      [&](int64_t begin, int64_t end) {
        PackRows(layout, args.from.data<T>(), args.to.data<T>(), begin, end);
      });
}

}  // namespace

void PackCpu(const PackArgs& args, const Exec& exec) {
  switch (SizeOf(args.from.dtype)) {
    case 8:
      return Pack<uint64_t>(args, exec);
    case 4:
      return Pack<uint32_t>(args, exec);
    case 2:
      return Pack<uint16_t>(args, exec);
    default:
      return Pack<uint8_t>(args, exec);
  }
}

}  // namespace espalier::internal
