#include <algorithm>
#include <cmath>

#include "espalier/ops/attention/internal/kernels.h"
#include "espalier/ops/attention/internal/panels.h"
#include "espalier/ops/attention/internal/rows.h"
#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/ops/scratch_slots.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::attention {

namespace {

using gemm::kLanes;
using gemm::Tile;
using gemm::TileStore;

// One pair of blocks with one group of heads.
class BackwardTask {
 public:
  BackwardTask(const BackwardArgs& args, Isa isa, const BlockPair& pair,
               bool first_step, int64_t group, char* slot)
      : args_(args),
        plan_(*args.plan),
        tile_(*plan_.tile),
        isa_(isa),
        q_(plan_.blocks[static_cast<size_t>(pair.queries)]),
        k_(plan_.blocks[static_cast<size_t>(pair.keys)]),
        first_step_(first_step),
        group_(group),
        slot_(slot),
        num_queries_(q_.end - q_.begin),
        num_keys_(k_.end - k_.begin),
        width_words_(tile_.words(args.q.dim(2))),
        v_width_words_(tile_.words(args.v.dim(2))),
        query_words_(tile_.words(num_queries_)),
        key_words_(tile_.words(num_keys_)) {}

  void Run() {
    PackLanes(args_.k, k_, num_keys_, plan_.keys, width_words_);
    PackLanes(args_.v, k_, num_keys_, plan_.values, v_width_words_);
    if (args_.dq_sum) {
      PackRows(args_.k, group_, k_, num_keys_, plan_.key_rows, key_words_);
    }
    const int64_t heads = args_.q.dim(1) / args_.k.dim(1);
    for (int64_t h = 0; h < heads; ++h) {
      head_ = group_ * heads + h;
      first_head_ = h == 0;
      RunHead();
    }
  }

 private:
  uint32_t* Words(Part part) const {
    return reinterpret_cast<uint32_t*>(slot_ + part.offset);
  }
  float* Floats(Part part) const {
    return reinterpret_cast<float*>(slot_ + part.offset);
  }
  int64_t rows() const { return plan_.tile_rows; }
  int64_t QueryBegin(int64_t p) const { return q_.begin + p * rows(); }
  int64_t QueryEnd(int64_t p) const {
    return std::min(q_.end, q_.begin + (p + 1) * rows());
  }
  // The keys of the block, from its beginning, that a panel of queries sees.
  int64_t SeenBegin(int64_t p) const {
    return std::max<int64_t>(
        0, args_.mask.KeyBegin(QueryBegin(p), q_.doc_begin) - k_.begin);
  }
  int64_t SeenEnd(int64_t p) const {
    return std::min(num_keys_,
                    args_.mask.KeyEnd(QueryEnd(p) - 1, q_.doc_end) - k_.begin);
  }

  // Tokens as lanes of B, to multiply along the width.
  void PackLanes(const View& view, const Block& block, int64_t count, Part part,
                 int64_t words) const {
    tile_.pack_b({.operand = HeadRows(view, group_, block.begin).ByToken(),
                  .num_lanes = count,
                  .num_k = view.dim(2),
                  .out = Words(part),
                  .out_stride = words * kLanes});
  }
  // The width as lanes of B, to multiply along tokens.
  void PackRows(const View& view, int64_t head, const Block& block,
                int64_t count, Part part, int64_t words) const {
    tile_.pack_b({.operand = HeadRows(view, head, block.begin).ByWidth(),
                  .num_lanes = view.dim(2),
                  .num_k = count,
                  .out = Words(part),
                  .out_stride = words * kLanes});
  }
  // Queries as lanes of A, to multiply along the width.
  void PackQueries(const View& view, Part part, int64_t words) const {
    tile_.pack_a({.operand = HeadRows(view, head_, q_.begin).ByToken(),
                  .num_lanes = num_queries_,
                  .num_k = view.dim(2),
                  .panel_lanes = plan_.tile_rows,
                  .out = Words(part),
                  .out_stride = words * tile_.a_pitch});
  }

  void RunHead() {
    PackQueries(args_.q, plan_.queries, width_words_);
    PackQueries(args_.dout, plan_.douts, v_width_words_);
    if (args_.dk_sum) {
      PackRows(args_.q, head_, q_, num_queries_, plan_.query_rows,
               query_words_);
    }
    if (args_.dv_sum) {
      PackRows(args_.dout, head_, q_, num_queries_, plan_.dout_rows,
               query_words_);
    }
    for (int64_t p = 0; p < CeilDiv(num_queries_, rows()); ++p) RunPanel(p);
    if (args_.dv_sum) {
      SumOverQueries(plan_.powers_by_key, plan_.dout_rows, args_.dv_sum);
    }
    if (args_.dk_sum) {
      SumOverQueries(plan_.dscores_by_key, plan_.query_rows, args_.dk_sum);
    }
  }

  void RunPanel(int64_t p) {
    const int64_t begin = SeenBegin(p);
    const int64_t end = SeenEnd(p);
    if (begin >= end) return;
    const int64_t first = begin / kLanes * kLanes;
    const int64_t first_lane = begin / rows() * rows();
    Multiply(p, plan_.queries, plan_.keys, width_words_, plan_.scores, first,
             end);
    Multiply(p, plan_.douts, plan_.values, v_width_words_, plan_.dscores, first,
             end);
    Gradients(p, std::min(first, first_lane), end);
    if (args_.dv_sum) {
      PackByKey(p, plan_.scores, first_lane, end, plan_.powers_by_key);
    }
    if (args_.dk_sum) {
      PackByKey(p, plan_.dscores, first_lane, end, plan_.dscores_by_key);
    }
    if (args_.dq_sum) SumOverKeys(p, first, end);
  }

  void Multiply(int64_t p, Part a, Part b, int64_t words, Part to,
                int64_t begin, int64_t end) const {
    RunWholePanels({.tile = tile_,
                    .tile_vectors = plan_.tile_vectors,
                    .num_words = words,
                    .a = Words(a) + p * words * tile_.a_pitch,
                    .rows = static_cast<int>(QueryEnd(p) - QueryBegin(p)),
                    .b = Words(b),
                    .b_stride = words * kLanes,
                    .store = TileStore::kStore,
                    .c = Floats(to),
                    .c_stride = plan_.score_stride},
                   begin, end);
  }

  void Gradients(int64_t p, int64_t zero_begin, int64_t zero_end) const {
    int32_t begin[kLanes];
    int32_t end[kLanes];
    const int64_t query = QueryBegin(p);
    const int count = static_cast<int>(QueryEnd(p) - query);
    for (int r = 0; r < count; ++r) {
      begin[r] = static_cast<int32_t>(
          std::clamp(args_.mask.KeyBegin(query + r, q_.doc_begin) - k_.begin,
                     zero_begin, zero_end));
      end[r] = static_cast<int32_t>(
          std::clamp(args_.mask.KeyEnd(query + r, q_.doc_end) - k_.begin,
                     zero_begin, zero_end));
    }
    const int64_t row = head_ * args_.q.dim(0) + query;
    GradientRows({.scores = Floats(plan_.scores),
                  .dpowers = Floats(plan_.dscores),
                  .stride = plan_.score_stride,
                  .rows = count,
                  .begin = begin,
                  .end = end,
                  .zero_begin = zero_begin,
                  .zero_end = zero_end,
                  .scale = static_cast<float>(args_.mask.scale),
                  .cap = static_cast<float>(args_.mask.soft_cap),
                  .lse = args_.lse.data<const float>() + row,
                  .delta = args_.delta.data<const float>() + row},
                 isa_);
  }

  // A panel of queries becomes the k range [p * rows, ...) of panels of keys.
  void PackByKey(int64_t p, Part from, int64_t begin, int64_t end,
                 Part to) const {
    const int64_t stride = query_words_ * tile_.a_pitch;
    tile_.pack_a(
        {.operand = {Floats(from) + begin, kF32, 1, plan_.score_stride},
         .num_lanes = end - begin,
         .num_k = QueryEnd(p) - QueryBegin(p),
         .panel_lanes = plan_.tile_rows,
         .out = Words(to) + begin / rows() * stride +
                tile_.words(p * rows()) * tile_.a_pitch,
         .out_stride = stride});
  }

  // dq of a panel += dscores k.
  void SumOverKeys(int64_t p, int64_t begin, int64_t end) const {
    const int64_t query = QueryBegin(p);
    const int count = static_cast<int>(QueryEnd(p) - query);
    tile_.pack_a({.operand = {Floats(plan_.dscores) + begin, kF32,
                              plan_.score_stride, 1},
                  .num_lanes = count,
                  .num_k = end - begin,
                  .panel_lanes = plan_.tile_rows,
                  .out = Words(plan_.dscore_panel)});
    const HeadRows to(args_.dq_sum, head_, query);
    RunExact({.tile = tile_,
              .tile_vectors = plan_.tile_vectors,
              .num_words = tile_.words(end - begin),
              .a = Words(plan_.dscore_panel),
              .rows = count,
              .b = Words(plan_.key_rows) + tile_.words(begin) * kLanes,
              .b_stride = key_words_ * kLanes,
              .store = first_step_ ? TileStore::kStore : TileStore::kAdd,
              .c = to.floats(),
              .c_stride = to.stride},
             to.width);
  }

  // dk or dv of every panel of keys += by_key rows, over the panels of queries
  // that see any of it.
  void SumOverQueries(Part by_key, Part query_rows, const View& sum) const {
    const bool store = first_step_ && first_head_;
    const int64_t num_panels = CeilDiv(num_queries_, rows());
    int64_t from = 0;
    int64_t to = 0;
    for (int64_t lane = 0; lane < num_keys_; lane += rows()) {
      const int64_t lane_end = std::min(num_keys_, lane + rows());
      while (from < num_panels && SeenEnd(from) <= lane) ++from;
      while (to < num_panels && SeenBegin(to) < lane_end) ++to;
      if (from >= to) continue;
      const int64_t skipped = tile_.words(from * rows());
      const HeadRows out(sum, group_, k_.begin + lane);
      RunExact({.tile = tile_,
                .tile_vectors = plan_.tile_vectors,
                .num_words = tile_.words(QueryEnd(to - 1) - q_.begin) - skipped,
                .a = Words(by_key) +
                     (lane / rows() * query_words_ + skipped) * tile_.a_pitch,
                .rows = static_cast<int>(lane_end - lane),
                .b = Words(query_rows) + skipped * kLanes,
                .b_stride = query_words_ * kLanes,
                .store = store ? TileStore::kStore : TileStore::kAdd,
                .c = out.floats(),
                .c_stride = out.stride},
               out.width);
    }
  }

  const BackwardArgs& args_;
  const BackwardPlan& plan_;
  const Tile& tile_;
  const Isa isa_;
  const Block& q_;
  const Block& k_;
  const bool first_step_;
  const int64_t group_;
  char* const slot_;
  const int64_t num_queries_;
  const int64_t num_keys_;
  const int64_t width_words_;
  const int64_t v_width_words_;
  const int64_t query_words_;
  const int64_t key_words_;
  int64_t head_ = 0;
  bool first_head_ = true;
};

void RunDelta(const BackwardArgs& args, const Exec& exec) {
  exec.pool.ParallelFor(args.o.dim(0), 32, [&](int64_t begin, int64_t end) {
    Delta({args.dout, args.o, args.delta.data<float>(), begin, end}, exec.isa);
  });
}

// dsinks[n] = -sum_t exp(sinks[n] - lse[n, t]) delta[n, t], in f64.
void RunSinks(const BackwardArgs& args) {
  const int64_t num_tokens = args.q.dim(0);
  const bool bf16 = args.sinks.dtype == kBF16;
  for (int64_t head = 0; head < args.q.dim(1); ++head) {
    const double sink = bf16 ? float{args.sinks.data<const BFloat16>()[head]}
                             : args.sinks.data<const float>()[head];
    const float* lse = args.lse.data<const float>() + head * num_tokens;
    const float* delta = args.delta.data<const float>() + head * num_tokens;
    double sum = 0;
    for (int64_t t = 0; t < num_tokens; ++t) {
      sum -= std::exp(sink - lse[t]) * delta[t];
    }
    if (bf16) {
      args.dsinks.data<BFloat16>()[head] = BFloat16(sum);
    } else {
      args.dsinks.data<float>()[head] = static_cast<float>(sum);
    }
  }
}

// out = scale * sum, rounded; one row a token.
void Finish(const View& sum, const View& out, double scale, const Exec& exec) {
  if (!out) return;
  const int64_t width = out.dim(1) * out.dim(2);
  exec.pool.ParallelFor(out.dim(0), 16, [&](int64_t begin, int64_t end) {
    const float factor = static_cast<float>(scale);
    for (int64_t t = begin; t < end; ++t) {
      online_softmax::ScaleRows(
          {.from = sum.data<const float>() + t * width,
           .factors = &factor,
           .rows = 1,
           .width = width,
           .to = out.data<char>() + t * width * SizeOf(out.dtype),
           .to_dtype = out.dtype},
          exec.isa);
    }
  });
}

}  // namespace

void BackwardCpu(const BackwardArgs& args, const Exec& exec) {
  const BackwardPlan& plan = *args.plan;
  const int64_t num_groups = args.k.dim(1);
  RunDelta(args, exec);
  if (args.dsinks) RunSinks(args);
  if (!args.dq && !args.dk && !args.dv) return;
  ScratchSlots slots(args.slots.pointer, plan.slot_bytes,
                     static_cast<int>(args.slots.dim(0)));
  int64_t step_begin = 0;
  for (const int64_t step_end : plan.step_ends) {
    const int64_t count = (step_end - step_begin) * num_groups;
    exec.pool.ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
      const ScratchSlots::Lease slot(slots);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t pair = step_begin + i / num_groups;
        BackwardTask(args, exec.isa, plan.pairs[static_cast<size_t>(pair)],
                     step_begin == 0, i % num_groups, slot.data())
            .Run();
      }
    });
    step_begin = step_end;
  }
  Finish(args.dq_sum, args.dq, args.mask.scale, exec);
  Finish(args.dk_sum, args.dk, args.mask.scale, exec);
  Finish(args.dv_sum, args.dv, 1, exec);
}

}  // namespace espalier::attention
