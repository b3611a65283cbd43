#include <algorithm>
#include <cmath>

#include "espalier/ops/attention/internal/kernels.h"
#include "espalier/ops/attention/internal/panels.h"
#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/ops/scratch_slots.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::attention {

namespace {

using gemm::kLanes;
using gemm::Tile;

float SinkAt(const View& sinks, int64_t head) {
  return sinks.dtype == kBF16 ? float{sinks.data<const BFloat16>()[head]}
                              : sinks.data<const float>()[head];
}

// One block of queries with one group of heads.
class ForwardTask {
 public:
  ForwardTask(const ForwardArgs& args, Isa isa, const Block& block,
              int64_t group, char* slot)
      : args_(args),
        plan_(*args.plan),
        tile_(*plan_.tile),
        isa_(isa),
        block_(block),
        group_(group),
        heads_(args.q.dim(1) / args.k.dim(1)),
        num_panels_(CeilDiv(block.end - block.begin, plan_.tile_rows)),
        width_words_(tile_.words(args.q.dim(2))),
        queries_(Words(slot, plan_.queries)),
        keys_(Words(slot, plan_.keys)),
        values_(Words(slot, plan_.values)),
        powers_(Words(slot, plan_.powers)),
        scores_(Floats(slot, plan_.scores)),
        out_(Floats(slot, plan_.out)),
        max_(Floats(slot, plan_.max)),
        sum_(Floats(slot, plan_.sum)) {}

  void Run() {
    for (int64_t h = 0; h < heads_; ++h) Start(h);
    const Mask& mask = args_.mask;
    const int64_t doc = block_.doc_begin;
    const int64_t first = mask.KeyBegin(block_.begin, doc) - doc;
    const int64_t last = mask.KeyEnd(block_.end - 1, block_.doc_end);
    for (int64_t key = doc + first / plan_.key_block * plan_.key_block;
         key < last; key += plan_.key_block) {
      key_begin_ = key;
      key_end_ = std::min(key + plan_.key_block, last);
      PackKeysAndValues();
      for (int64_t h = 0; h < heads_; ++h) {
        for (int64_t p = 0; p < num_panels_; ++p) AddPanel(h, p);
      }
    }
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t p = 0; p < num_panels_; ++p) Finish(h, p);
    }
  }

 private:
  static uint32_t* Words(char* slot, Part part) {
    return reinterpret_cast<uint32_t*>(slot + part.offset);
  }
  static float* Floats(char* slot, Part part) {
    return reinterpret_cast<float*>(slot + part.offset);
  }
  int64_t Head(int64_t h) const { return group_ * heads_ + h; }
  int64_t PanelBegin(int64_t p) const {
    return block_.begin + p * plan_.tile_rows;
  }
  int PanelRows(int64_t p) const {
    return static_cast<int>(
        std::min<int64_t>(plan_.tile_rows, block_.end - PanelBegin(p)));
  }
  // Where a panel's rows lie in max_, sum_ and, times out_width, in out_.
  int64_t Row(int64_t h, int64_t p) const {
    return h * plan_.query_block + p * plan_.tile_rows;
  }
  uint32_t* QueryPanel(int64_t h, int64_t p) const {
    const int64_t panels = plan_.query_block / plan_.tile_rows;
    return queries_ + (h * panels + p) * width_words_ * tile_.a_pitch;
  }

  void Start(int64_t h) {
    tile_.pack_a({.operand = HeadRows(args_.q, Head(h), block_.begin).ByToken(),
                  .num_lanes = block_.end - block_.begin,
                  .num_k = args_.q.dim(2),
                  .panel_lanes = plan_.tile_rows,
                  .out = QueryPanel(h, 0),
                  .out_stride = width_words_ * tile_.a_pitch});
    const int64_t row = Row(h, 0);
    const int64_t rows = block_.end - block_.begin;
    float max = -INFINITY;
    if (args_.sinks) {
      max = SinkAt(args_.sinks, Head(h)) *
            static_cast<float>(online_softmax::kLog2E);
    }
    std::fill_n(max_ + row, rows, max);
    std::fill_n(sum_ + row, rows, args_.sinks ? 1.0f : 0.0f);
    std::fill_n(out_ + row * plan_.out_width, rows * plan_.out_width, 0.0f);
  }

  void PackKeysAndValues() {
    tile_.pack_b({.operand = HeadRows(args_.k, group_, key_begin_).ByToken(),
                  .num_lanes = key_end_ - key_begin_,
                  .num_k = args_.k.dim(2),
                  .out = keys_,
                  .out_stride = width_words_ * kLanes});
    value_stride_ = tile_.words(key_end_ - key_begin_) * kLanes;
    tile_.pack_b({.operand = HeadRows(args_.v, group_, key_begin_).ByWidth(),
                  .num_lanes = args_.v.dim(2),
                  .num_k = key_end_ - key_begin_,
                  .out = values_,
                  .out_stride = value_stride_});
  }

  // The keys of the current block, into one panel of rows.
  void AddPanel(int64_t h, int64_t p) {
    const int64_t query = PanelBegin(p);
    const int rows = PanelRows(p);
    const Mask& mask = args_.mask;
    const int64_t begin =
        std::max(mask.KeyBegin(query, block_.doc_begin), key_begin_) -
        key_begin_;
    const int64_t end =
        std::min(mask.KeyEnd(query + rows - 1, block_.doc_end), key_end_) -
        key_begin_;
    if (begin >= end) return;
    const int64_t first = begin / kLanes * kLanes;
    RunWholePanels({.tile = tile_,
                    .tile_vectors = plan_.tile_vectors,
                    .num_words = width_words_,
                    .a = QueryPanel(h, p),
                    .rows = rows,
                    .b = keys_,
                    .b_stride = width_words_ * kLanes,
                    .store = gemm::TileStore::kStore,
                    .c = scores_,
                    .c_stride = plan_.score_stride},
                   first, end);
    Softmax(h, p, first, end);
    tile_.pack_a({.operand = {scores_ + first, kF32, plan_.score_stride, 1},
                  .num_lanes = rows,
                  .num_k = end - first,
                  .panel_lanes = plan_.tile_rows,
                  .out = powers_});
    RunWholePanels({.tile = tile_,
                    .tile_vectors = plan_.tile_vectors,
                    .num_words = tile_.words(end - first),
                    .a = powers_,
                    .rows = rows,
                    .b = values_ + tile_.words(first) * kLanes,
                    .b_stride = value_stride_,
                    .store = gemm::TileStore::kAdd,
                    .c = out_ + Row(h, p) * plan_.out_width,
                    .c_stride = plan_.out_width},
                   0, plan_.out_width);
  }

  void Softmax(int64_t h, int64_t p, int64_t first, int64_t last) {
    int32_t begin[kLanes];
    int32_t end[kLanes];
    const int rows = PanelRows(p);
    for (int r = 0; r < rows; ++r) {
      const int64_t query = PanelBegin(p) + r;
      begin[r] = static_cast<int32_t>(
          std::clamp(args_.mask.KeyBegin(query, block_.doc_begin) - key_begin_,
                     first, last));
      end[r] = static_cast<int32_t>(std::clamp(
          args_.mask.KeyEnd(query, block_.doc_end) - key_begin_, first, last));
    }
    const int64_t row = Row(h, p);
    online_softmax::AddBlock({.scores = scores_,
                              .stride = plan_.score_stride,
                              .rows = rows,
                              .begin = begin,
                              .end = end,
                              .zero_begin = first,
                              .zero_end = last,
                              .scale = static_cast<float>(args_.mask.scale),
                              .cap = static_cast<float>(args_.mask.soft_cap),
                              .max = max_ + row,
                              .sum = sum_ + row,
                              .out = out_ + row * plan_.out_width,
                              .out_stride = plan_.out_width,
                              .out_width = plan_.out_width},
                             isa_);
  }

  void Finish(int64_t h, int64_t p) {
    const int rows = PanelRows(p);
    const int64_t row = Row(h, p);
    const int64_t query = PanelBegin(p);
    float factors[kLanes];
    float* lse = args_.lse.data<float>() + Head(h) * args_.q.dim(0) + query;
    for (int r = 0; r < rows; ++r) {
      factors[r] = 1 / sum_[row + r];
      lse[r] = online_softmax::LogSumExp(max_[row + r], sum_[row + r]);
    }
    const HeadRows to(args_.o, Head(h), query);
    online_softmax::ScaleRows({.from = out_ + row * plan_.out_width,
                               .from_stride = plan_.out_width,
                               .factors = factors,
                               .rows = rows,
                               .width = to.width,
                               .to = const_cast<char*>(to.data),
                               .to_stride = to.stride,
                               .to_dtype = to.dtype},
                              isa_);
  }

  const ForwardArgs& args_;
  const ForwardPlan& plan_;
  const Tile& tile_;
  const Isa isa_;
  const Block& block_;
  const int64_t group_;
  const int64_t heads_;  // of the group
  const int64_t num_panels_;
  const int64_t width_words_;
  // In the slot.
  uint32_t* const queries_;
  uint32_t* const keys_;
  uint32_t* const values_;
  uint32_t* const powers_;
  float* const scores_;
  float* const out_;
  float* const max_;
  float* const sum_;
  // The block of keys being worked on.
  int64_t key_begin_ = 0;
  int64_t key_end_ = 0;
  int64_t value_stride_ = 0;
};

}  // namespace

void ForwardCpu(const ForwardArgs& args, const Exec& exec) {
  const ForwardPlan& plan = *args.plan;
  const int64_t num_groups = args.k.dim(1);
  const int64_t num_blocks = static_cast<int64_t>(plan.blocks.size());
  ScratchSlots slots(args.slots.pointer, plan.slot_bytes,
                     static_cast<int>(args.slots.dim(0)));
  exec.pool.ParallelFor(
      num_blocks * num_groups, 1, [&](int64_t begin, int64_t end) {
        const ScratchSlots::Lease slot(slots);
        for (int64_t i = begin; i < end; ++i) {
          // Late blocks have the most keys: they go first.
          const int64_t block = num_blocks - 1 - i / num_groups;
          ForwardTask(args, exec.isa, plan.blocks[static_cast<size_t>(block)],
                      i % num_groups, slot.data())
              .Run();
        }
      });
}

}  // namespace espalier::attention
