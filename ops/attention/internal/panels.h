#ifndef ESPALIER_OPS_ATTENTION_INTERNAL_PANELS_H_
#define ESPALIER_OPS_ATTENTION_INTERNAL_PANELS_H_

#include <algorithm>
#include <cstdint>

#include "espalier/ops/gemm/tile.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/view.h"

// Steps that the forward and the backward pass share.
namespace espalier::attention {

// Rows of one head of a [T, heads, width] tensor, from `token` on, as operands.
struct HeadRows {
  HeadRows(const View& view, int64_t head, int64_t token)
      : data(static_cast<const char*>(view.pointer) +
             (token * view.dim(1) + head) * view.dim(2) * SizeOf(view.dtype)),
        dtype(view.dtype),
        stride(view.dim(1) * view.dim(2)),
        width(view.dim(2)) {}

  // Lanes are tokens, k runs along the width.
  gemm::Operand ByToken() const { return {data, dtype, stride, 1}; }
  // Lanes run along the width, k are tokens.
  gemm::Operand ByWidth() const { return {data, dtype, 1, stride}; }
  // Of an f32 tensor that is written.
  float* floats() const {
    return reinterpret_cast<float*>(const_cast<char*>(data));
  }

  const char* data;
  DType dtype;
  int64_t stride;
  int64_t width;
};

// A panel of A times the panels of B [begin, end) columns, into c (whose
// column 0 is B's): `begin` a multiple of 16.
struct PanelProduct {
  const gemm::Tile& tile;
  int tile_vectors;
  int64_t num_words;
  const uint32_t* a;
  int rows;
  const uint32_t* b;
  int64_t b_stride;  // words between panels
  gemm::TileStore store;
  float* c;
  int64_t c_stride;
};

// Whole panels are written: c has room for columns up to a multiple of 16.
inline void RunWholePanels(const PanelProduct& product, int64_t begin,
                           int64_t end) {
  const int64_t step = int64_t{product.tile_vectors} * gemm::kLanes;
  gemm::TileArgs run;
  run.num_words = product.num_words;
  run.a = product.a;
  run.b_stride = product.b_stride;
  run.rows = product.rows;
  run.store = product.store;
  run.c_stride = product.c_stride;
  for (int64_t column = begin; column < end; column += step) {
    const int64_t panels = std::min<int64_t>(
        product.tile_vectors, CeilDiv(end - column, gemm::kLanes));
    run.b = product.b + column / gemm::kLanes * product.b_stride;
    run.c = product.c + column;
    run.cols = static_cast<int>(panels * gemm::kLanes);
    product.tile.run(run);
  }
}

// Exactly the columns [0, width) are written.
inline void RunExact(const PanelProduct& product, int64_t width) {
  const int64_t whole = width / gemm::kLanes * gemm::kLanes;
  RunWholePanels(product, 0, whole);
  if (whole == width) return;
  gemm::TileArgs run;
  run.num_words = product.num_words;
  run.a = product.a;
  run.b = product.b + whole / gemm::kLanes * product.b_stride;
  run.b_stride = product.b_stride;
  run.rows = product.rows;
  run.cols = static_cast<int>(width - whole);
  run.store = product.store;
  run.c = product.c + whole;
  run.c_stride = product.c_stride;
  product.tile.run(run);
}

}  // namespace espalier::attention

#endif  // ESPALIER_OPS_ATTENTION_INTERNAL_PANELS_H_
