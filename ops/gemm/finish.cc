#include "espalier/ops/gemm/finish.h"

#include <cstdint>

#include "espalier/runtime/float16.h"

namespace espalier::gemm {
namespace {

template <typename Out, typename Bias>
void FinishRow(const float* tile, const float* partial, const Bias* bias,
               const Finish& finish, int cols, Out* out) {
  const float alpha = finish.alpha;
  const float beta = finish.beta;
  float value[kLanes * 4];
  for (int j = 0; j < cols; ++j) value[j] = tile[j];
  if (partial != nullptr) {
    for (int j = 0; j < cols; ++j) value[j] = partial[j] + value[j];
  }
  if (alpha != 1) {
    for (int j = 0; j < cols; ++j) value[j] *= alpha;
  }
  if (beta != 0) {
    for (int j = 0; j < cols; ++j) value[j] += beta * float{out[j]};
  }
  if (bias != nullptr) {
    for (int j = 0; j < cols; ++j) value[j] += float{bias[j]};
  }
  for (int j = 0; j < cols; ++j) out[j] = Out(value[j]);
}

template <typename Out, typename Bias>
void FinishRows(const float* tile, int64_t tile_stride, const TileArgs& args) {
  const Finish& finish = *args.finish;
  for (int r = 0; r < args.rows; ++r) {
    FinishRow(tile + r * tile_stride,
              finish.partial == nullptr
                  ? nullptr
                  : finish.partial + r * finish.partial_stride,
              static_cast<const Bias*>(finish.bias), finish, args.cols,
              static_cast<Out*>(finish.out) + r * finish.out_stride);
  }
}

template <typename Out>
void FinishTo(const float* tile, int64_t tile_stride, const TileArgs& args) {
  if (args.finish->bias_dtype == kBF16) {
    FinishRows<Out, BFloat16>(tile, tile_stride, args);
  } else {
    FinishRows<Out, float>(tile, tile_stride, args);
  }
}

}  // namespace

void FinishTile(const float* tile, int64_t tile_stride, const TileArgs& args) {
  if (args.store == TileStore::kFinish) {
    if (args.finish->out_dtype == kBF16) {
      FinishTo<BFloat16>(tile, tile_stride, args);
    } else {
      FinishTo<float>(tile, tile_stride, args);
    }
    return;
  }
  const bool add = args.store == TileStore::kAdd;
  for (int r = 0; r < args.rows; ++r) {
    const float* from = tile + r * tile_stride;
    float* to = args.c + r * args.c_stride;
    for (int j = 0; j < args.cols; ++j) to[j] = add ? to[j] + from[j] : from[j];
  }
}

}  // namespace espalier::gemm
