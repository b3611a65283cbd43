#include <algorithm>

#include "espalier/ops/delta_rule/internal/forward_heads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/delta_rule/delta_rule_token_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::delta_rule {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// One token of one head on scratch of whole vectors.
struct Token {
  const float* q;  // [K]
  const float* k;
  const float* decay;
  float beta;
  float scale;
  int64_t width, v_width;
  float* state;    // [K, V]
  float* updates;  // [V]: comes as v
  float* out;      // [V]

  void Run() const {
    const F32Tag d;
    std::fill_n(out, v_width, 0.0f);
    for (int64_t i = 0; i < width; ++i) {
      const auto factor = hn::Set(d, decay[i]);
      const auto key = hn::Set(d, k[i]);
      float* row = state + i * v_width;
      for (int64_t j = 0; j < v_width; j += Lanes()) {
        const auto s = hn::Mul(factor, hn::LoadU(d, row + j));
        hn::StoreU(s, d, row + j);
        hn::StoreU(hn::MulAdd(key, s, hn::LoadU(d, out + j)), d, out + j);
      }
    }
    for (int64_t j = 0; j < v_width; j += Lanes()) {
      const auto residual =
          hn::Sub(hn::LoadU(d, updates + j), hn::LoadU(d, out + j));
      hn::StoreU(hn::Mul(hn::Set(d, beta), residual), d, updates + j);
    }
    std::fill_n(out, v_width, 0.0f);
    for (int64_t i = 0; i < width; ++i) {
      const auto key = hn::Set(d, k[i]);
      const auto query = hn::Set(d, q[i] * scale);
      float* row = state + i * v_width;
      for (int64_t j = 0; j < v_width; j += Lanes()) {
        const auto s =
            hn::MulAdd(key, hn::LoadU(d, updates + j), hn::LoadU(d, row + j));
        hn::StoreU(s, d, row + j);
        hn::StoreU(hn::MulAdd(query, s, hn::LoadU(d, out + j)), d, out + j);
      }
    }
  }
};

void TokenForward(const ForwardArgs& args, const Exec& exec) {
  const Plan& plan = *args.plan;
  ForwardHeads(args, exec, [&](ChunkWalk& walk) {
    // v becomes u in the first half of `reads`; o goes to the second.
    float* updates = walk.Floats(plan.reads);
    float* out = updates + plan.chunk * plan.v_width;
    CopyIn({.from = RowsOf(args.v, walk.head(), walk.begin()),
            .num_rows = walk.num_rows(),
            .chunk = plan.chunk,
            .width = args.v.dim(2),
            .padded = plan.v_width,
            .out = updates},
           walk.isa());
    for (int64_t i = 0; i < walk.num_rows(); ++i) {
      Token{walk.Floats(plan.queries) + i * plan.width,
            walk.Floats(plan.keys) + i * plan.width,
            walk.Floats(plan.decays) + i * plan.width,
            walk.Floats(plan.beta)[i],
            static_cast<float>(args.scale),
            plan.width,
            plan.v_width,
            walk.state(),
            updates + i * plan.v_width,
            out + i * plan.v_width}
          .Run();
    }
    CopyOut({.from = out,
             .num_rows = walk.num_rows(),
             .width = args.v.dim(2),
             .padded = plan.v_width,
             .out = RowsTo(args.o, walk.head(), walk.begin())},
            walk.isa());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::delta_rule
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::delta_rule {

void TokenForwardCpu(const ForwardArgs& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, TokenForward)(args, exec);
}

}  // namespace espalier::delta_rule
#endif
