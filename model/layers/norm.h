#ifndef ESPALIER_MODEL_LAYERS_NORM_H_
#define ESPALIER_MODEL_LAYERS_NORM_H_

#include <cstdint>
#include <string>

#include "espalier/model/module.h"

namespace espalier {

// RMSNorm with a weight [width].
class RmsNormLayer final : public Module {
 public:
  RmsNormLayer(std::string name, int64_t width, double eps);
  // x [.., width]
  Variable Forward(const Variable& x);

 private:
  Parameter& weight_;
  const double eps_;
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_NORM_H_
