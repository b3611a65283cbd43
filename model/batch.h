#ifndef ESPALIER_MODEL_BATCH_H_
#define ESPALIER_MODEL_BATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/runtime/tensor.h"

namespace espalier {

// Packed documents: one run of T tokens without padding.
struct Batch {
  Tensor ids;        // [T] i32
  Tensor positions;  // [T] i32, from 0 in each document
  Tensor labels;     // [T] i32, the next token, or -100: not trained
  Tensor weights;    // [T] f32, of the token losses; absent: all 1
  // Document d is [cu_seqlens[d], cu_seqlens[d + 1]); the first is 0, the last
  // is T.
  std::shared_ptr<const std::vector<int32_t>> cu_seqlens;
  int64_t num_trained = 0;  // labels that are not -100
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_BATCH_H_
