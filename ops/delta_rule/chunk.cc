#include "espalier/ops/delta_rule/internal/chunk.h"

#include <algorithm>

namespace espalier::delta_rule {

using gemm::TileStore;

namespace {

int64_t WidthOf(const View& view) { return view.ndim == 2 ? 1 : view.dim(2); }

}  // namespace

Target RowsTo(const View& view, int64_t h, int64_t t) {
  const int64_t width = WidthOf(view);
  return {static_cast<char*>(view.pointer) +
              (t * view.dim(1) + h) * width * SizeOf(view.dtype),
          view.dtype, view.dim(1) * width};
}

Source RowsOf(const View& view, int64_t h, int64_t t) {
  const Target rows = RowsTo(view, h, t);
  return {rows.data, rows.dtype, rows.stride};
}

ChunkWalk::ChunkWalk(const Inputs& inputs, const Plan& plan, Isa isa,
                     int64_t head, char* slot)
    : inputs_(inputs),
      plan_(plan),
      products_(plan),
      isa_(isa),
      head_(head),
      group_(head / (inputs.v.dim(1) / inputs.q.dim(1))),
      slot_(slot),
      state_(Floats(plan.state)) {}

void ChunkWalk::ReadState(const float* from, float* to) const {
  if (from == nullptr) {
    std::fill_n(to, plan_.width * plan_.v_width, 0.0f);
    return;
  }
  const int64_t v_width = inputs_.v.dim(2);
  CopyIn({.from = {from, kF32, v_width},
          .num_rows = inputs_.q.dim(2),
          .chunk = plan_.width,
          .width = v_width,
          .padded = plan_.v_width,
          .out = to},
         isa_);
}

void ChunkWalk::WriteState(const float* from, float* to) const {
  const int64_t v_width = inputs_.v.dim(2);
  CopyOut({.from = from,
           .num_rows = inputs_.q.dim(2),
           .width = v_width,
           .padded = plan_.v_width,
           .out = {to, kF32, v_width}},
          isa_);
}

void ChunkWalk::LoadTokens(int64_t begin, int64_t end) {
  begin_ = begin;
  num_rows_ = end - begin;
  Load({.q = RowsOf(inputs_.q, group_, begin),
        .k = RowsOf(inputs_.k, group_, begin),
        .g = RowsOf(inputs_.g, head_, begin),
        .head_gate = inputs_.g.ndim == 2,
        .num_rows = num_rows_,
        .chunk = plan_.chunk,
        .width = inputs_.q.dim(2),
        .padded = plan_.width,
        .queries = Floats(plan_.queries),
        .keys = Floats(plan_.keys),
        .decays = Floats(plan_.decays),
        .columns = Floats(plan_.columns),
        .tile_decay = Floats(plan_.tile_decay),
        .prefix = Floats(plan_.prefix),
        .operand = plan_.operand,
        .rows = slot_ + plan_.rows.offset,
        .from_start = slot_ + plan_.from_start.offset},
       isa_);
  const int64_t heads = inputs_.beta.dim(1);
  const float* beta = inputs_.beta.data<const float>() + begin * heads + head_;
  for (int64_t i = 0; i < plan_.chunk; ++i) {
    Floats(plan_.beta)[i] = i < num_rows_ ? beta[i * heads] : 0.0f;
  }
}

void ChunkWalk::Fetch(const View& view, int64_t h, int64_t begin, int64_t end) {
  if (!view) return;
  const Source rows = RowsOf(view, h, begin);
  products_.Fetch(rows.data, rows.dtype, rows.stride, end - begin,
                  WidthOf(view));
}

void ChunkWalk::FetchTokens(int64_t begin, int64_t end) {
  Fetch(inputs_.q, group_, begin, end);
  Fetch(inputs_.k, group_, begin, end);
  Fetch(inputs_.g, head_, begin, end);
}

void ChunkWalk::CarryColumns(Part columns, int64_t tile) const {
  if (tile < 2) return;
  ScaleColumns(Floats(columns), (tile - 1) * kTileRows, plan_.width,
               tile_decay(tile - 1), isa_);
}

void ChunkWalk::Scores(int64_t kept) {
  float* by_key = Floats(plan_.kept.keys, kept);
  float* by_query = Floats(plan_.kept.queries, kept);
  const int64_t depth = products_.words(plan_.width);
  for (int64_t tile = 0; tile < num_tiles(); ++tile) {
    const int64_t row = tile * kTileRows;
    Pairs({.queries = Floats(plan_.queries),
           .keys = Floats(plan_.keys),
           .decays = Floats(plan_.decays),
           .row = row,
           .chunk = plan_.chunk,
           .padded = plan_.width,
           .key_scores = by_key,
           .query_scores = by_query},
          isa_);
    if (tile == 0) continue;
    CarryColumns(plan_.columns, tile);
    products_.PackA(ByRow(rows(tile), plan_.width, plan_.operand), 0,
                    2 * kTileRows, 0, plan_.width, depth, Words(plan_.a));
    products_.PackB(ByRow(Floats(plan_.columns), plan_.width), row, plan_.width,
                    Words(plan_.b));
    products_.Run(Words(plan_.a), {0, kTileRows}, Words(plan_.b), row,
                  {0, plan_.width}, depth, TileStore::kStore,
                  by_key + row * plan_.chunk, plan_.chunk);
    products_.Run(Words(plan_.a), {kTileRows, 2 * kTileRows}, Words(plan_.b),
                  row, {0, plan_.width}, depth, TileStore::kStore,
                  by_query + row * plan_.chunk, plan_.chunk);
  }
  CarryColumns(plan_.columns, num_tiles());
}

void ChunkWalk::Solve(int64_t kept, bool outputs) {
  Scores(kept);
  Invert(Floats(plan_.kept.keys, kept), Floats(plan_.beta), plan_.chunk,
         Floats(plan_.kept.inverse, kept), isa_);
  const int64_t num_rows = (outputs ? 2 : 1) * plan_.chunk;
  const int64_t depth = products_.words(plan_.width);
  products_.PackA(
      ByRow(slot_ + plan_.from_start.offset, plan_.width, plan_.operand), 0,
      num_rows, 0, plan_.width, depth, Words(plan_.a));
  products_.PackB(ByColumn(state_, plan_.v_width), plan_.v_width, plan_.width,
                  Words(plan_.b));
  products_.Run(Words(plan_.a), {0, num_rows}, Words(plan_.b), plan_.v_width,
                {0, plan_.width}, depth, TileStore::kStore, Floats(plan_.reads),
                plan_.v_width);
  Residual({.values = RowsOf(inputs_.v, head_, begin_),
            .num_rows = num_rows_,
            .chunk = plan_.chunk,
            .width = inputs_.v.dim(2),
            .padded = plan_.v_width,
            .beta = Floats(plan_.beta),
            .reads = Floats(plan_.reads),
            .residual = Floats(plan_.kept.residual, kept)},
           isa_);
  const int64_t chunk_depth = products_.words(plan_.chunk);
  products_.PackA(ByRow(Floats(plan_.kept.inverse, kept), plan_.chunk), 0,
                  plan_.chunk, 0, plan_.chunk, chunk_depth, Words(plan_.a));
  products_.PackB(ByColumn(Floats(plan_.reads), plan_.v_width), plan_.v_width,
                  plan_.chunk, Words(plan_.b));
  for (int64_t row = 0; row < plan_.chunk; row += kTileRows) {
    products_.Run(
        Words(plan_.a), {row, row + kTileRows}, Words(plan_.b), plan_.v_width,
        {0, row + kTileRows}, chunk_depth, TileStore::kStore,
        Floats(plan_.kept.updates, kept) + row * plan_.v_width, plan_.v_width);
  }
  // For Outputs and Advance.
  products_.PackB(ByColumn(Floats(plan_.kept.updates, kept), plan_.v_width),
                  plan_.v_width, plan_.chunk, Words(plan_.b));
}

void ChunkWalk::Outputs(int64_t kept) {
  const int64_t depth = products_.words(plan_.chunk);
  products_.PackA(ByRow(Floats(plan_.kept.queries, kept), plan_.chunk), 0,
                  plan_.chunk, 0, plan_.chunk, depth, Words(plan_.a));
  float* out = Floats(plan_.reads) + plan_.chunk * plan_.v_width;
  for (int64_t row = 0; row < plan_.chunk; row += kTileRows) {
    products_.Run(Words(plan_.a), {row, row + kTileRows}, Words(plan_.b),
                  plan_.v_width, {0, row + kTileRows}, depth, TileStore::kAdd,
                  out + row * plan_.v_width, plan_.v_width);
  }
}

void ChunkWalk::Advance(float* to) {
  ScaleRows(state_, plan_.width, plan_.v_width, total_decay(), to, isa_);
  const int64_t depth = products_.words(plan_.chunk);
  products_.PackA(ByColumn(Floats(plan_.columns), plan_.width), 0, plan_.width,
                  0, plan_.chunk, depth, Words(plan_.a));
  products_.Run(Words(plan_.a), {0, plan_.width}, Words(plan_.b), plan_.v_width,
                {0, plan_.chunk}, depth, TileStore::kAdd, to, plan_.v_width);
}

}  // namespace espalier::delta_rule
