#ifndef ESPALIER_LORA_LORA_DELTA_H_
#define ESPALIER_LORA_LORA_DELTA_H_

#include <cstdint>
#include <string>

#include "espalier/model/layers/linear.h"
#include "espalier/runtime/device.h"

namespace espalier::lora {

// LoRA (arXiv:2106.09685): y + scaling * (x A^T) B^T, with
// scaling = lora_alpha / lora_rank.
//   A [R, in] f32, uniform in +-1 / sqrt(in) (Kaiming with a = sqrt(5), as PEFT
//   initialises); B [out, R] f32, zeros
// The factors are rounded to x's dtype for the products; the dense product BA
// is never formed. Parameters "lora_A.weight" and "lora_B.weight" under the
// adapted layer's name.
class LoraDelta final : public LinearDelta {
 public:
  // `name` is the adapted layer's. A's values depend on (seed, name) alone.
  LoraDelta(std::string name, const LinearLayer& base, int64_t lora_rank,
            double lora_alpha, uint64_t seed, Device& device);

  Variable Forward(const Variable& x, const Variable& y) override;
  int64_t lora_rank() const { return lora_a_.shape().dim(0); }
  double scaling() const { return scaling_; }

 private:
  Parameter& lora_a_;
  Parameter& lora_b_;
  const double scaling_;
};

}  // namespace espalier::lora

#endif  // ESPALIER_LORA_LORA_DELTA_H_
