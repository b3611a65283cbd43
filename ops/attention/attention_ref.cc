#include <cmath>

#include "espalier/ops/attention/internal/kernels.h"

namespace espalier::attention {

namespace {

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(double scale, const double* x, int64_t n, double* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

void SetZero(const View& view) {
  if (!view) return;
  double* data = view.data<double>();
  for (int64_t i = 0; i < view.num_elements(); ++i) data[i] = 0;
}

double Cap(const Mask& mask, double score) {
  if (mask.soft_cap == 0) return score;
  return mask.soft_cap * std::tanh(score / mask.soft_cap);
}

// One query row of one head and where its keys lie.
struct Row {
  int64_t t, head, group, key_begin, key_end;
};

template <typename Fn>
void ForEachRow(const std::vector<int32_t>& cu_seqlens, const Mask& mask,
                int64_t num_heads, int64_t num_groups, Fn fn) {
  for (size_t d = 0; d + 1 < cu_seqlens.size(); ++d) {
    const int64_t begin = cu_seqlens[d];
    const int64_t end = cu_seqlens[d + 1];
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t head = 0; head < num_heads; ++head) {
        fn(Row{t, head, head / (num_heads / num_groups),
               mask.KeyBegin(t, begin), mask.KeyEnd(t, end)});
      }
    }
  }
}

const double* At(const View& view, int64_t t, int64_t head) {
  return view.data<const double>() + (t * view.dim(1) + head) * view.dim(2);
}
double* MutableAt(const View& view, int64_t t, int64_t head) {
  return view.data<double>() + (t * view.dim(1) + head) * view.dim(2);
}

}  // namespace

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.q.dim(2);
  const int64_t v_width = args.v.dim(2);
  const int64_t num_tokens = args.q.dim(0);
  ForEachRow(
      *args.cu_seqlens, args.mask, args.q.dim(1), args.k.dim(1),
      [&](const Row& row) {
        const double* q = At(args.q, row.t, row.head);
        const auto score = [&](int64_t j) {
          return Cap(args.mask,
                     args.mask.scale * Dot(q, At(args.k, j, row.group), width));
        };
        double highest =
            args.sinks ? args.sinks.data<const double>()[row.head] : -INFINITY;
        for (int64_t j = row.key_begin; j < row.key_end; ++j) {
          highest = std::fmax(highest, score(j));
        }
        double sum =
            args.sinks
                ? std::exp(args.sinks.data<const double>()[row.head] - highest)
                : 0;
        for (int64_t j = row.key_begin; j < row.key_end; ++j) {
          sum += std::exp(score(j) - highest);
        }
        const double lse = highest + std::log(sum);
        args.lse.data<double>()[row.head * num_tokens + row.t] = lse;
        double* o = MutableAt(args.o, row.t, row.head);
        for (int64_t i = 0; i < v_width; ++i) o[i] = 0;
        for (int64_t j = row.key_begin; j < row.key_end; ++j) {
          AddScaled(std::exp(score(j) - lse), At(args.v, j, row.group), v_width,
                    o);
        }
      });
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t width = args.q.dim(2);
  const int64_t v_width = args.v.dim(2);
  const int64_t num_tokens = args.q.dim(0);
  const Mask& mask = args.mask;
  for (const View& view : {args.dq, args.dk, args.dv, args.dsinks}) {
    SetZero(view);
  }
  ForEachRow(
      *args.cu_seqlens, mask, args.q.dim(1), args.k.dim(1),
      [&](const Row& row) {
        const double* q = At(args.q, row.t, row.head);
        const double* dout = At(args.dout, row.t, row.head);
        const double lse =
            args.lse.data<const double>()[row.head * num_tokens + row.t];
        const double delta = Dot(dout, At(args.o, row.t, row.head), v_width);
        if (args.dsinks) {
          args.dsinks.data<double>()[row.head] -=
              std::exp(args.sinks.data<const double>()[row.head] - lse) * delta;
        }
        for (int64_t j = row.key_begin; j < row.key_end; ++j) {
          const double* k = At(args.k, j, row.group);
          const double* v = At(args.v, j, row.group);
          const double score = Cap(mask, mask.scale * Dot(q, k, width));
          const double p = std::exp(score - lse);
          double ds = p * (Dot(dout, v, v_width) - delta) * mask.scale;
          if (mask.soft_cap != 0) {
            const double tanh = score / mask.soft_cap;
            ds *= 1 - tanh * tanh;
          }
          if (args.dq) {
            AddScaled(ds, k, width, MutableAt(args.dq, row.t, row.head));
          }
          if (args.dk) {
            AddScaled(ds, q, width, MutableAt(args.dk, j, row.group));
          }
          if (args.dv) {
            AddScaled(p, dout, v_width, MutableAt(args.dv, j, row.group));
          }
        }
      });
}

}  // namespace espalier::attention
