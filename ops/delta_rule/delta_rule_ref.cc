#include <algorithm>
#include <cmath>

#include "espalier/ops/delta_rule/internal/kernels.h"

namespace espalier::delta_rule {

namespace {

// One head of one document, seen from its tokens.
template <class Args>
struct Head {
  Head(const Args& args, const Document& document, int64_t n)
      : args(args),
        document(document),
        n(n),
        group(n / (args.v.dim(1) / args.q.dim(1))),
        width(args.q.dim(2)),
        v_width(args.v.dim(2)) {}

  // Row i of head h of a [T, heads, ..] tensor.
  static double* Row(const View& view, int64_t t, int64_t h) {
    int64_t size = 1;
    for (int d = 2; d < view.ndim; ++d) size *= view.dim(d);
    return view.data<double>() + (t * view.dim(1) + h) * size;
  }
  const double* q(int64_t t) const { return Row(args.q, t, group); }
  const double* k(int64_t t) const { return Row(args.k, t, group); }
  const double* v(int64_t t) const { return Row(args.v, t, n); }
  double beta(int64_t t) const { return *Row(args.beta, t, n); }
  double g(int64_t t, int64_t i) const {
    const double* row = Row(args.g, t, n);
    return args.g.ndim == 2 ? *row : row[i];
  }
  double* State(const View& view) const { return Row(view, document.index, n); }

  // state [K, V] decays; residual [V] = v - state^T k.
  void Decay(int64_t t, double* state, double* residual) const {
    for (int64_t j = 0; j < v_width; ++j) residual[j] = v(t)[j];
    for (int64_t i = 0; i < width; ++i) {
      const double decay = std::exp(g(t, i));
      for (int64_t j = 0; j < v_width; ++j) {
        state[i * v_width + j] *= decay;
        residual[j] -= state[i * v_width + j] * k(t)[i];
      }
    }
  }
  void Update(int64_t t, const double* residual, double* state) const {
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < v_width; ++j) {
        state[i * v_width + j] += k(t)[i] * beta(t) * residual[j];
      }
    }
  }
  void Start(double* state) const {
    for (int64_t i = 0; i < width * v_width; ++i) {
      state[i] = args.initial ? State(args.initial)[i] : 0;
    }
  }

  const Args& args;
  const Document& document;
  const int64_t n, group, width, v_width;
};

template <class Args, class Fn>
void ForEachHead(const Args& args, const Fn& fn) {
  const std::vector<int32_t>& at = *args.cu_seqlens;
  for (size_t d = 0; d + 1 < at.size(); ++d) {
    const Document document = {static_cast<int64_t>(d), at[d], at[d + 1], 0};
    for (int64_t n = 0; n < args.v.dim(1); ++n) {
      fn(Head<Args>(args, document, n));
    }
  }
}

void Clear(const View& view) {
  if (view) std::fill_n(view.data<double>(), view.num_elements(), 0.0);
}

// The gradients of one head, from its last token to its first.
class BackwardHead {
 public:
  BackwardHead(const Head<BackwardArgs>& head, double* scratch)
      : head_(head),
        args_(head.args),
        width_(head.width),
        v_width_(head.v_width),
        size_(width_ * v_width_),
        dstate_(scratch),
        residual_(scratch + size_),
        de_(residual_ + v_width_),
        decayed_(de_ + v_width_),
        states_(decayed_ + size_) {}

  void Run() {
    const Document& document = head_.document;
    head_.Start(states_);
    for (int64_t t = document.begin; t < document.end; ++t) {
      double* next = StateAfter(t);
      std::copy_n(StateAfter(t - 1), size_, next);
      head_.Decay(t, next, residual_);
      head_.Update(t, residual_, next);
    }
    for (int64_t i = 0; i < size_; ++i) {
      dstate_[i] = args_.dfinal ? head_.State(args_.dfinal)[i] : 0;
    }
    for (int64_t t = document.end - 1; t >= document.begin; --t) Token(t);
    if (args_.dinitial) {
      std::copy_n(dstate_, size_, head_.State(args_.dinitial));
    }
  }

 private:
  double* StateAfter(int64_t t) const {
    return states_ + (t - head_.document.begin + 1) * size_;
  }
  double* Row(const View& view, int64_t t, int64_t h) const {
    return Head<BackwardArgs>::Row(view, t, h);
  }

  void Token(int64_t t) {
    const double* dout = Row(args_.dout, t, head_.n);
    std::copy_n(StateAfter(t - 1), size_, decayed_);
    head_.Decay(t, decayed_, residual_);
    for (int64_t i = 0; i < width_; ++i) {
      double dq = 0;
      for (int64_t j = 0; j < v_width_; ++j) {
        dq += StateAfter(t)[i * v_width_ + j] * dout[j];
        dstate_[i * v_width_ + j] += args_.scale * head_.q(t)[i] * dout[j];
      }
      if (args_.dq) Row(args_.dq, t, head_.group)[i] += args_.scale * dq;
    }
    double dbeta = 0;
    for (int64_t j = 0; j < v_width_; ++j) {
      double du = 0;
      for (int64_t i = 0; i < width_; ++i) {
        du += dstate_[i * v_width_ + j] * head_.k(t)[i];
      }
      dbeta += du * residual_[j];
      de_[j] = head_.beta(t) * du;
      if (args_.dv) Row(args_.dv, t, head_.n)[j] = de_[j];
    }
    if (args_.dbeta) *Row(args_.dbeta, t, head_.n) = dbeta;
    for (int64_t i = 0; i < width_; ++i) Channel(t, i);
  }

  void Channel(int64_t t, int64_t i) {
    double dk = 0;
    double dg = 0;
    for (int64_t j = 0; j < v_width_; ++j) {
      double& dstate = dstate_[i * v_width_ + j];
      const double state = decayed_[i * v_width_ + j];
      dk += dstate * head_.beta(t) * residual_[j] - state * de_[j];
      dstate -= head_.k(t)[i] * de_[j];
      dg += dstate * state;
      dstate *= std::exp(head_.g(t, i));
    }
    if (args_.dk) Row(args_.dk, t, head_.group)[i] += dk;
    if (args_.dg) {
      double* to = Row(args_.dg, t, head_.n);
      to[args_.g.ndim == 2 ? 0 : i] += dg;
    }
  }

  const Head<BackwardArgs>& head_;
  const BackwardArgs& args_;
  const int64_t width_, v_width_, size_;
  double* const dstate_;    // [K, V]
  double* const residual_;  // [V]
  double* const de_;        // [V]
  double* const decayed_;   // [K, V]
  double* const states_;    // [tokens + 1, K, V]
};

}  // namespace

int64_t ForwardRefScratch(const Sizes& sizes) {
  return (sizes.width + 1) * sizes.v_width;
}

int64_t BackwardRefScratch(const Sizes& sizes, int64_t longest_document) {
  return (longest_document + 3) * sizes.width * sizes.v_width +
         2 * sizes.v_width;
}

void ForwardRef(const ForwardArgs& args, const Exec&) {
  ForEachHead(args, [&](const Head<ForwardArgs>& head) {
    double* state = args.slots.data<double>();
    double* residual = state + head.width * head.v_width;
    head.Start(state);
    for (int64_t t = head.document.begin; t < head.document.end; ++t) {
      head.Decay(t, state, residual);
      head.Update(t, residual, state);
      double* o = head.Row(args.o, t, head.n);
      for (int64_t j = 0; j < head.v_width; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < head.width; ++i) {
          sum += state[i * head.v_width + j] * head.q(t)[i];
        }
        o[j] = args.scale * sum;
      }
    }
    if (args.final_state) {
      std::copy_n(state, head.width * head.v_width,
                  head.State(args.final_state));
    }
  });
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  for (const View* view : {&args.dq, &args.dk, &args.dg}) Clear(*view);
  ForEachHead(args, [&](const Head<BackwardArgs>& head) {
    BackwardHead(head, args.slots.data<double>()).Run();
  });
}

}  // namespace espalier::delta_rule
