#ifndef ESPALIER_MODEL_LAYERS_FORWARD_PASS_H_
#define ESPALIER_MODEL_LAYERS_FORWARD_PASS_H_

#include "espalier/model/batch.h"
#include "espalier/ops/rope/rope.h"

namespace espalier {

// What every layer is handed beside its input, made once for a batch. Borrowed
// for the pass.
struct ForwardPass {
  const Batch& batch;
  const RopeTable& rope;
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_FORWARD_PASS_H_
