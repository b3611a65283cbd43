#include <algorithm>

#include "espalier/ops/short_conv/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/short_conv/short_conv_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/activations-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::short_conv {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// Channels that are worked on at a time in the backward pass, so that the sums
// stay in the first cache.
constexpr int64_t kPiece = 512;

// The weight as rows of channels, in f32.
template <class Args>
void SpreadTaps(const Args& args) {
  const int64_t width = args.x.dim(1);
  float* taps = args.taps.template data<float>();
  for (int64_t c = 0; c < width; ++c) {
    for (int64_t j = 0; j < args.num_taps; ++j) {
      const int64_t i = c * args.num_taps + j;
      taps[j * width + c] =
          args.weight.dtype == kBF16
              ? float{args.weight.template data<const BFloat16>()[i]}
              : args.weight.template data<const float>()[i];
    }
  }
}

// The rows that a position of a document sums, and their taps. Rows of zeros
// are left out.
template <typename T>
struct Window {
  template <class Args>
  Window(const Args& args, const Document& document, int64_t position) {
    const int64_t width = args.x.dim(1);
    for (int64_t j = 0; j < args.num_taps; ++j) {
      const T* row = RowAt<T>(args.x, args.initial, args.num_taps, document,
                              position - (args.num_taps - 1) + j);
      if (row == nullptr) continue;
      rows[count] = row;
      taps[count] = args.taps.template data<const float>() + j * width;
      index[count++] = j;
    }
  }
  template <class Access>
  HWY_INLINE Vector Sum(const Access& io, int64_t c) const {
    const F32Tag d;
    auto sum = hn::Zero(d);
    for (int i = 0; i < count; ++i) {
      sum = hn::MulAdd(io.Load(d, rows[i] + c), io.Load(d, taps[i] + c), sum);
    }
    return sum;
  }
  const T* rows[kMaxTaps];
  const float* taps[kMaxTaps];
  int64_t index[kMaxTaps];
  int count = 0;
};

template <typename T>
void KeepFinal(const ForwardArgs& args) {
  const int64_t width = args.x.dim(1);
  const int64_t past = args.num_taps - 1;
  const std::vector<int32_t>& at = *args.cu_seqlens;
  T* to = args.final_state.data<T>();
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    const Document document = {static_cast<int64_t>(i), at[i], at[i + 1]};
    for (int64_t r = 0; r < past; ++r, to += width) {
      const T* row = RowAt<T>(args.x, args.initial, args.num_taps, document,
                              document.end - document.begin - past + r);
      if (row == nullptr) {
        std::fill_n(to, width, T(0.0f));
      } else {
        std::copy_n(row, width, to);
      }
    }
  }
}

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(1);
  SpreadTaps(args);
  if (args.final_state) KeepFinal<T>(args);
  const WholeAccess access{RoundsNatively(exec)};
  exec.pool.ParallelFor(
      args.x.dim(0), RowGrain(width), [&](int64_t begin, int64_t end) {
        const F32Tag d;
        for (int64_t t = begin; t < end; ++t) {
          const Document document = DocumentOf(*args.cu_seqlens, t);
          const Window<T> window(args, document, t - document.begin);
          T* y = args.y.data<T>() + t * width;
          ForEachVector(width, access, [&](int64_t c, auto io) {
            auto p = window.Sum(io, c);
            if (args.silu) {
              auto slope = hn::Zero(d);
              p = Activate<Activation::kSilu, T>(d, p, slope);
            }
            io.Store(d, p, y + c);
          });
        }
      });
}

// The gradients of the sums of `past` + 1 tokens, for channels [begin, end).
template <typename T>
class Ring {
 public:
  Ring(const BackwardArgs& args, int64_t begin, int64_t end)
      : args_(args), begin_(begin), count_(end - begin) {}

  // Fills token t's row.
  void Fill(const Document& document, int64_t t) {
    const F32Tag d;
    const Window<T> window(args_, document, t - document.begin);
    const T* dy = args_.dy.data<const T>() + t * args_.x.dim(1) + begin_;
    ForEachVector(count_, [&](int64_t c, auto io) {
      auto g = io.Load(d, dy + c);
      if (args_.silu) {
        auto slope = hn::Zero(d);
        Activate<Activation::kSilu, T>(d, window.Sum(io, begin_ + c), slope);
        g = hn::Mul(g, slope);
      }
      io.Store(d, g, Row(t) + c);
    });
  }

  // sums [K, C] += row(t) times the inputs that token t summed.
  void AddToWeight(const Document& document, int64_t t, float* sums) const {
    const F32Tag d;
    const int64_t width = args_.x.dim(1);
    const Window<T> window(args_, document, t - document.begin);
    const float* dp = Row(t);
    for (int i = 0; i < window.count; ++i) {
      const T* row = window.rows[i] + begin_;
      float* sum = sums + window.index[i] * width + begin_;
      ForEachVector(count_, [&](int64_t c, auto io) {
        io.Store(d,
                 hn::MulAdd(io.Load(d, dp + c), io.Load(d, row + c),
                            io.Load(d, sum + c)),
                 sum + c);
      });
    }
  }

  // The gradient of the row at a position of a document, from the rows of the
  // tokens that summed it and, when the row is kept, from the final state's.
  void Gather(const Document& document, int64_t position, T* out,
              bool native) const {
    const F32Tag d;
    const int64_t past = args_.num_taps - 1;
    const int64_t width = args_.x.dim(1);
    const float* taps = args_.taps.data<const float>() + begin_;
    const int64_t length = document.end - document.begin;
    const T* kept = nullptr;
    if (args_.dfinal && position + past >= length) {
      kept = args_.dfinal.data<const T>() +
             (document.index * past + position + past - length) * width +
             begin_;
    }
    ForEachVector(count_, WholeAccess{native}, [&](int64_t c, auto io) {
      auto sum = kept != nullptr ? io.Load(d, kept + c) : hn::Zero(d);
      for (int64_t j = 0; j <= past; ++j) {
        const int64_t i = position + past - j;
        if (i < 0 || i >= length) continue;
        sum = hn::MulAdd(io.Load(d, Row(document.begin + i) + c),
                         io.Load(d, taps + j * width + c), sum);
      }
      io.Store(d, sum, out + begin_ + c);
    });
  }

 private:
  float* Row(int64_t t) { return rows_[t % kMaxTaps]; }
  const float* Row(int64_t t) const { return rows_[t % kMaxTaps]; }

  const BackwardArgs& args_;
  const int64_t begin_;
  const int64_t count_;
  alignas(64) float rows_[kMaxTaps][kPiece];
};

// Tokens [begin, end), from the last to the first.
template <typename T>
void BackwardBlock(const BackwardArgs& args, int64_t begin, int64_t end,
                   float* sums, bool native) {
  const int64_t width = args.x.dim(1);
  const int64_t past = args.num_taps - 1;
  const Document last = DocumentOf(*args.cu_seqlens, end - 1);
  for (int64_t piece = 0; piece < width; piece += kPiece) {
    Ring<T> ring(args, piece, std::min(width, piece + kPiece));
    for (int64_t t = std::min(end + past, last.end) - 1; t >= begin; --t) {
      const Document document = DocumentOf(*args.cu_seqlens, t);
      ring.Fill(document, t);
      if (t >= end) continue;
      if (sums != nullptr) ring.AddToWeight(document, t, sums);
      if (args.dx) {
        ring.Gather(document, t - document.begin, args.dx.data<T>() + t * width,
                    native);
      }
    }
  }
}

// The gradient of one document's initial state.
template <typename T>
void BackwardInitial(const BackwardArgs& args, const Document& document,
                     bool native) {
  const int64_t width = args.x.dim(1);
  const int64_t past = args.num_taps - 1;
  for (int64_t piece = 0; piece < width; piece += kPiece) {
    Ring<T> ring(args, piece, std::min(width, piece + kPiece));
    for (int64_t t = document.begin;
         t < std::min(document.begin + past, document.end); ++t) {
      ring.Fill(document, t);
    }
    for (int64_t r = 0; r < past; ++r) {
      ring.Gather(document, r - past,
                  args.dinitial.data<T>() + (document.index * past + r) * width,
                  native);
    }
  }
}

// dweight [C, K] = the blocks' sums [K, C], added in order.
template <typename W>
void AddWeight(const BackwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(1);
  const int64_t row = args.num_taps * width;
  const int64_t num_blocks = NumBlocks(args.x.dim(0));
  const float* blocks = args.block_sums.data<const float>();
  exec.pool.ParallelFor(width, 256, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t j = 0; j < args.num_taps; ++j) {
        float sum = 0;
        for (int64_t b = 0; b < num_blocks; ++b) {
          sum += blocks[b * row + j * width + c];
        }
        args.dweight.data<W>()[c * args.num_taps + j] = W(sum);
      }
    }
  });
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(1);
  const bool native = RoundsNatively(exec);
  SpreadTaps(args);
  const int64_t num_tokens = args.x.dim(0);
  exec.pool.ParallelFor(
      NumBlocks(num_tokens), 1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          float* sums = nullptr;
          if (args.dweight) {
            sums =
                args.block_sums.data<float>() + block * args.num_taps * width;
            std::fill_n(sums, args.num_taps * width, 0.0f);
          }
          BackwardBlock<T>(args, block * kBlockRows,
                           std::min(num_tokens, (block + 1) * kBlockRows), sums,
                           native);
        }
      });
  if (args.dweight && args.dweight.dtype == kBF16) {
    AddWeight<BFloat16>(args, exec);
  } else if (args.dweight) {
    AddWeight<float>(args, exec);
  }
  if (!args.dinitial) return;
  const std::vector<int32_t>& at = *args.cu_seqlens;
  exec.pool.ParallelFor(
      static_cast<int64_t>(at.size()) - 1, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const size_t n = static_cast<size_t>(i);
          BackwardInitial<T>(args, {i, at[n], at[n + 1]}, native);
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::short_conv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::short_conv {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::short_conv
#endif
