#include "espalier/model/layers/norm.h"

#include <utility>

#include "espalier/ops/rms_norm/rms_norm.h"

namespace espalier {

RmsNormLayer::RmsNormLayer(std::string name, int64_t width, double eps)
    : Module(std::move(name)),
      weight_(AddParameter("weight", {width})),
      eps_(eps) {}

Variable RmsNormLayer::Forward(const Variable& x) {
  return RmsNorm(x, weight_.variable(), eps_);
}

}  // namespace espalier
