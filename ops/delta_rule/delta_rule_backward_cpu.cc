#include <algorithm>

#include "espalier/ops/delta_rule/internal/chunk.h"
#include "espalier/ops/delta_rule/internal/kernels.h"
#include "espalier/ops/scratch_slots.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::delta_rule {

namespace {

using gemm::TileStore;

// One head of one document, from its last segment to its first: the chunks of a
// segment are solved again in order, then walked back.
class BackwardHead {
 public:
  BackwardHead(const BackwardArgs& args, const Document& document,
               ChunkWalk& walk)
      : args_(args),
        plan_(*args.plan),
        document_(document),
        walk_(walk),
        products_(walk.products()),
        heads_(args.v.dim(1)),
        heads_per_group_(heads_ / args.q.dim(1)) {}

  void Run() {
    walk_.ReadState(args_.dfinal ? Row(args_.dfinal, document_.index) : nullptr,
                    Floats(plan_.dstate));
    const int64_t length = document_.end - document_.begin;
    const int64_t num_segments = CeilDiv(length, kSegment);
    for (int64_t s = num_segments - 1; s >= 0; --s) RunSegment(s);
    if (args_.dinitial) {
      walk_.WriteState(Floats(plan_.dstate),
                       Row(args_.dinitial, document_.index));
    }
  }

 private:
  float* Row(const View& view, int64_t index) const {
    return view.data<float>() +
           (index * heads_ + walk_.head()) * args_.q.dim(2) * args_.v.dim(2);
  }
  float* Floats(Part part) const { return walk_.Floats(part); }
  uint32_t* a() const { return walk_.Words(plan_.a); }
  uint32_t* b() const { return walk_.Words(plan_.b); }

  void RunSegment(int64_t segment) {
    const int64_t begin = document_.begin + segment * kSegment;
    const int64_t end = std::min(begin + kSegment, document_.end);
    const int64_t num_chunks = CeilDiv(end - begin, plan_.chunk);
    const float* state = nullptr;
    if (segment > 0) {
      state = Row(args_.states, document_.first_state + segment - 1);
    } else if (args_.initial) {
      state = Row(args_.initial, document_.index);
    }
    walk_.ReadState(state, walk_.Floats(plan_.kept.state, 0));
    for (int64_t c = 0; c < num_chunks; ++c) {
      walk_.SetState(walk_.Floats(plan_.kept.state, c));
      const bool last = c + 1 == num_chunks;
      Load(begin, end, c, last);
      products_.Forget();
      if (last) {
        walk_.Fetch(args_.dout, walk_.head(), walk_.begin(), end);
      } else {
        const int64_t next = walk_.end();
        const int64_t next_end = std::min(next + plan_.chunk, end);
        walk_.FetchTokens(next, next_end);
        walk_.Fetch(args_.v, walk_.head(), next, next_end);
      }
      walk_.Solve(c, /*outputs=*/false);
      if (!last) walk_.Advance(walk_.Floats(plan_.kept.state, c + 1));
    }
    for (int64_t c = num_chunks - 1; c >= 0; --c) {
      if (c + 1 < num_chunks) {  // the last one is there already
        Load(begin, end, c, /*way_back=*/true);
        for (int64_t t = 2; t <= walk_.num_tiles(); ++t) {
          walk_.CarryColumns(plan_.columns, t);
        }
      }
      FetchForChunk(c);
      Chunk(c);
    }
  }

  void Load(int64_t begin, int64_t end, int64_t c, bool way_back) {
    const int64_t first = begin + c * plan_.chunk;
    walk_.LoadTokens(first, std::min(first + plan_.chunk, end));
    if (!way_back) return;
    std::copy_n(Floats(plan_.columns), plan_.chunk * plan_.width,
                Floats(plan_.local_columns));
  }

  // What chunk c, already loaded, writes, and what the one before it reads.
  void FetchForChunk(int64_t c) {
    const int64_t begin = walk_.begin();
    const int64_t end = walk_.end();
    products_.Forget();
    walk_.Fetch(args_.dv, walk_.head(), begin, end);
    walk_.Fetch(args_.dq, walk_.group(), begin, end);
    walk_.Fetch(args_.dk, walk_.group(), begin, end);
    walk_.Fetch(args_.dg, walk_.head(), begin, end);
    if (c == 0) return;
    walk_.Fetch(args_.dout, walk_.head(), begin - plan_.chunk, begin);
    walk_.FetchTokens(begin - plan_.chunk, begin);
  }

  void Chunk(int64_t c) {
    Updates(c);
    ScoresAndBeta(c);
    StateTerms(c);
    ScoreTerms();
    Gradients({.queries = Floats(plan_.queries),
               .keys = Floats(plan_.keys),
               .decays = Floats(plan_.decays),
               .dkeys = Floats(plan_.dkeys),
               .dqueries = Floats(plan_.dqueries),
               .chunk = plan_.chunk,
               .padded = plan_.width,
               .total = Floats(plan_.dtotal),
               .row_terms = Floats(plan_.terms),
               .query_terms = QueryTerms(),
               .column_terms = Floats(plan_.dcolumns)},
              walk_.isa());
    Store();
  }

  float* QueryTerms() const {
    return Floats(plan_.terms) + plan_.chunk * plan_.width;
  }

  // solved = X: du = scale N^T do + K_end D, then back through the inverse.
  void Updates(int64_t c) {
    const CopyInArgs douts{
        .from = RowsOf(args_.dout, walk_.head(), walk_.begin()),
        .num_rows = walk_.num_rows(),
        .chunk = plan_.chunk,
        .width = args_.v.dim(2),
        .padded = plan_.v_width,
        .scale = static_cast<float>(args_.scale),
        .out = Floats(plan_.douts)};
    CopyIn(douts, walk_.isa());
    float* du = Floats(plan_.dupdates);
    Transposed(walk_.Floats(plan_.kept.queries, c), Floats(plan_.douts), du);
    const int64_t depth = products_.words(plan_.width);
    products_.PackA(ByRow(Floats(plan_.columns), plan_.width), 0, plan_.chunk,
                    0, plan_.width, depth, a());
    products_.PackB(ByColumn(Floats(plan_.dstate), plan_.v_width),
                    plan_.v_width, plan_.width, b());
    products_.Run(a(), {0, plan_.chunk}, b(), plan_.v_width, {0, plan_.width},
                  depth, TileStore::kAdd, du, plan_.v_width);
    Transposed(walk_.Floats(plan_.kept.inverse, c), du, Floats(plan_.solved));
  }

  // out [C, V] = the transpose of a lower triangle [C, C], times rows [C, V].
  void Transposed(const float* triangle, const float* rows, float* out) {
    const int64_t depth = products_.words(plan_.chunk);
    products_.PackA(ByColumn(triangle, plan_.chunk), 0, plan_.chunk, 0,
                    plan_.chunk, depth, a());
    products_.PackB(ByColumn(rows, plan_.v_width), plan_.v_width, plan_.chunk,
                    b());
    for (int64_t row = 0; row < plan_.chunk; row += kTileRows) {
      products_.Run(a(), {row, row + kTileRows}, b(), plan_.v_width,
                    {row, plan_.chunk}, depth, TileStore::kStore,
                    out + row * plan_.v_width, plan_.v_width);
    }
  }

  // Rows of a part, then those of scale do, as A.
  void PackWithDouts(Part part) {
    const int64_t depth = products_.words(plan_.v_width);
    products_.PackA(ByRow(Floats(part), plan_.v_width), 0, plan_.chunk, 0,
                    plan_.v_width, depth, a());
    products_.PackA(ByRow(Floats(plan_.douts), plan_.v_width), plan_.chunk,
                    plan_.chunk, 0, plan_.v_width, depth, a());
  }

  // X u^T and scale do u^T, and what follows for beta and v.
  void ScoresAndBeta(int64_t c) {
    const int64_t depth = products_.words(plan_.v_width);
    PackWithDouts(plan_.solved);
    products_.PackB(ByRow(walk_.Floats(plan_.kept.updates, c), plan_.v_width),
                    plan_.chunk, plan_.v_width, b());
    for (int64_t row = 0; row < plan_.chunk; row += kTileRows) {
      products_.Run(a(), {row, row + kTileRows}, b(), row + kTileRows,
                    {0, plan_.v_width}, depth, TileStore::kStore,
                    Floats(plan_.dkeys) + row * plan_.chunk, plan_.chunk);
      products_.Run(a(), {plan_.chunk + row, plan_.chunk + row + kTileRows},
                    b(), row + kTileRows, {0, plan_.v_width}, depth,
                    TileStore::kStore,
                    Floats(plan_.dqueries) + row * plan_.chunk, plan_.chunk);
    }
    ScoreGradients({.solved = Floats(plan_.solved),
                    .residual = walk_.Floats(plan_.kept.residual, c),
                    .beta = Floats(plan_.beta),
                    .key_scores = walk_.Floats(plan_.kept.keys, c),
                    .chunk = plan_.chunk,
                    .v_padded = plan_.v_width,
                    .moved = Floats(plan_.moved),
                    .dkeys = Floats(plan_.dkeys),
                    .dqueries = Floats(plan_.dqueries),
                    .dbeta = Floats(plan_.dbeta)},
                   walk_.isa());
  }

  // Through the state: terms, dcolumns, total, and the state's own gradient.
  void StateTerms(int64_t c) {
    const int64_t depth = products_.words(plan_.v_width);
    const float* state = walk_.Floats(plan_.kept.state, c);
    PackWithDouts(plan_.moved);
    products_.PackB(ByRow(state, plan_.v_width), plan_.width, plan_.v_width,
                    b());
    products_.Run(a(), {0, 2 * plan_.chunk}, b(), plan_.width,
                  {0, plan_.v_width}, depth, TileStore::kStore,
                  Floats(plan_.terms), plan_.width);
    products_.PackA(ByRow(walk_.Floats(plan_.kept.updates, c), plan_.v_width),
                    0, plan_.chunk, 0, plan_.v_width, depth, a());
    products_.PackB(ByRow(Floats(plan_.dstate), plan_.v_width), plan_.width,
                    plan_.v_width, b());
    products_.Run(a(), {0, plan_.chunk}, b(), plan_.width, {0, plan_.v_width},
                  depth, TileStore::kStore, Floats(plan_.dcolumns),
                  plan_.width);
    Total({.state = state,
           .dstate = Floats(plan_.dstate),
           .decay = walk_.total_decay(),
           .columns = Floats(plan_.columns),
           .dcolumns = Floats(plan_.dcolumns),
           .chunk = plan_.chunk,
           .padded = plan_.width,
           .v_padded = plan_.v_width,
           .total = Floats(plan_.dtotal)},
          walk_.isa());
    ScaleRows(Floats(plan_.dstate), plan_.width, plan_.v_width,
              walk_.total_decay(), Floats(plan_.dstate), walk_.isa());
    const int64_t chunk_depth = products_.words(2 * plan_.chunk);
    products_.PackA(
        ByColumn(walk_.Floats(plan_.from_start), plan_.width, plan_.operand), 0,
        plan_.width, 0, 2 * plan_.chunk, chunk_depth, a());
    products_.PackB(ByColumn(Floats(plan_.moved), plan_.v_width), plan_.v_width,
                    0, plan_.chunk, chunk_depth, b());
    products_.PackB(ByColumn(Floats(plan_.douts), plan_.v_width), plan_.v_width,
                    plan_.chunk, plan_.chunk, chunk_depth, b());
    products_.Run(a(), {0, plan_.width}, b(), plan_.v_width,
                  {0, 2 * plan_.chunk}, chunk_depth, TileStore::kAdd,
                  Floats(plan_.dstate), plan_.v_width);
  }

  // Through pairs of different tiles. The terms come from the chunk's
  // beginning, and dcolumns from its end, to those of each row's tile.
  void ScoreTerms() {
    for (int64_t tile = 0; tile < walk_.num_tiles(); ++tile) {
      const float* before = Floats(plan_.prefix) + tile * plan_.width;
      const int64_t at = tile * kTileRows * plan_.width;
      ScaleColumns(QueryTerms() + at, kTileRows, plan_.width, before,
                   walk_.isa());
      ScaleColumns(Floats(plan_.terms) + at, kTileRows, plan_.width, before,
                   walk_.isa());
    }
    for (int64_t tile = walk_.num_tiles() - 1; tile > 0; --tile) {
      ColumnTerms(tile);
    }
    for (int64_t tile = 1; tile < walk_.num_tiles(); ++tile) RowTerms(tile);
  }

  // dcolumns of the tiles before `tile`, carried to its beginning, get what its
  // rows give.
  void ColumnTerms(int64_t tile) {
    const int64_t count = tile * kTileRows;
    ScaleColumns(Floats(plan_.dcolumns), count, plan_.width,
                 walk_.tile_decay(tile), walk_.isa());
    const int64_t depth = products_.words(2 * kTileRows);
    products_.PackA(
        ByColumn(Floats(plan_.dkeys) + count * plan_.chunk, plan_.chunk), 0,
        count, 0, kTileRows, depth, a());
    products_.PackA(
        ByColumn(Floats(plan_.dqueries) + count * plan_.chunk, plan_.chunk), 0,
        count, kTileRows, kTileRows, depth, a());
    products_.PackB(ByColumn(walk_.rows(tile), plan_.width, plan_.operand),
                    plan_.width, 2 * kTileRows, b());
    products_.Run(a(), {0, count}, b(), plan_.width, {0, 2 * kTileRows}, depth,
                  TileStore::kAdd, Floats(plan_.dcolumns), plan_.width);
  }

  // The terms of a tile's rows get what the columns before it give.
  void RowTerms(int64_t tile) {
    walk_.CarryColumns(plan_.local_columns, tile);
    const int64_t count = tile * kTileRows;
    const int64_t depth = products_.words(count);
    products_.PackA(
        ByRow(Floats(plan_.dkeys) + count * plan_.chunk, plan_.chunk), 0,
        kTileRows, 0, count, depth, a());
    products_.PackA(
        ByRow(Floats(plan_.dqueries) + count * plan_.chunk, plan_.chunk),
        kTileRows, kTileRows, 0, count, depth, a());
    products_.PackB(ByColumn(Floats(plan_.local_columns), plan_.width),
                    plan_.width, count, b());
    products_.Run(a(), {0, kTileRows}, b(), plan_.width, {0, count}, depth,
                  TileStore::kAdd, Floats(plan_.terms) + count * plan_.width,
                  plan_.width);
    products_.Run(a(), {kTileRows, 2 * kTileRows}, b(), plan_.width, {0, count},
                  depth, TileStore::kAdd, QueryTerms() + count * plan_.width,
                  plan_.width);
  }

  // Adds up over the heads of a group, and rounds at the last.
  void StoreShared(const float* rows, const View& sum, const View& out) {
    if (!out) return;
    const int64_t h = walk_.head() % heads_per_group_;
    const bool last = h + 1 == heads_per_group_;
    CopyOut(
        {.from = rows,
         .num_rows = walk_.num_rows(),
         .width = out.dim(2),
         .padded = plan_.width,
         .add = h > 0 ? RowsOf(sum, walk_.group(), walk_.begin()) : Source(),
         .out = RowsTo(last ? out : sum, walk_.group(), walk_.begin())},
        walk_.isa());
  }

  void Store() {
    StoreShared(QueryTerms(), args_.dq_sum, args_.dq);
    StoreShared(Floats(plan_.terms), args_.dk_sum, args_.dk);
    const int64_t head = walk_.head();
    if (args_.dv) {
      CopyOut({.from = Floats(plan_.moved),
               .num_rows = walk_.num_rows(),
               .width = args_.v.dim(2),
               .padded = plan_.v_width,
               .scale = -1,
               .out = RowsTo(args_.dv, head, walk_.begin())},
              walk_.isa());
    }
    if (args_.dbeta) {
      float* to = args_.dbeta.data<float>() + walk_.begin() * heads_ + head;
      for (int64_t i = 0; i < walk_.num_rows(); ++i) {
        to[i * heads_] = Floats(plan_.dbeta)[i];
      }
    }
    if (args_.dg && args_.dg.ndim == 2) {
      SumRows(Floats(plan_.dcolumns), walk_.num_rows(), plan_.width,
              args_.dg.data<float>() + walk_.begin() * heads_ + head, heads_,
              walk_.isa());
    } else if (args_.dg) {
      CopyOut({.from = Floats(plan_.dcolumns),
               .num_rows = walk_.num_rows(),
               .width = args_.dg.dim(2),
               .padded = plan_.width,
               .out = RowsTo(args_.dg, head, walk_.begin())},
              walk_.isa());
    }
  }

  const BackwardArgs& args_;
  const Plan& plan_;
  const Document& document_;
  ChunkWalk& walk_;
  Products& products_;
  const int64_t heads_;
  const int64_t heads_per_group_;
};

}  // namespace

void BackwardCpu(const BackwardArgs& args, const Exec& exec) {
  const Plan& plan = *args.plan;
  const int64_t groups = args.q.dim(1);
  const int64_t heads_per_group = args.v.dim(1) / groups;
  const Inputs inputs{args.q, args.k, args.v, args.g, args.beta};
  ScratchSlots slots(args.slots.pointer, plan.slot_bytes,
                     static_cast<int>(args.slots.dim(0)));
  // A group's heads run one after another: their gradients of q and k add up.
  exec.pool.ParallelFor(
      static_cast<int64_t>(plan.documents.size()) * groups, 1,
      [&](int64_t begin, int64_t end) {
        const ScratchSlots::Lease slot(slots);
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t h = 0; h < heads_per_group; ++h) {
            ChunkWalk walk(inputs, plan, exec.isa,
                           i % groups * heads_per_group + h, slot.data());
            BackwardHead(args, plan.documents[static_cast<size_t>(i / groups)],
                         walk)
                .Run();
          }
        }
      });
}

}  // namespace espalier::delta_rule
