#ifndef ESPALIER_OPS_DROPOUT_DROPOUT_H_
#define ESPALIER_OPS_DROPOUT_DROPOUT_H_

#include "espalier/autograd/rng_stream.h"
#include "espalier/autograd/variable.h"

namespace espalier {

// Inverted dropout. Element i, in row-major order, is kept if
//   run.rng.Bits(run.first + i) >= rate * 2^32   (rate rounded to 2^-32)
// and then becomes x / (1 - rate); otherwise it is 0.
//   x f64 | f32 | bf16, contiguous   0 <= rate < 1   returns x's shape
// Rate 0 returns x and takes no numbers. Saves nothing: backward draws the same
// numbers again; x in a selective region. Fails: INTERNAL on a strided x or
// another rate.
Variable Dropout(const Variable& x, double rate, autograd::RngStream& stream);

}  // namespace espalier

#endif  // ESPALIER_OPS_DROPOUT_DROPOUT_H_
