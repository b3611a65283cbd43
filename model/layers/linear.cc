#include "espalier/model/layers/linear.h"

#include <utility>

#include "espalier/ops/matmul/matmul.h"
#include "espalier/runtime/check.h"

namespace espalier {

LinearLayer::LinearLayer(std::string name, int64_t in_features,
                         int64_t out_features, bool bias)
    : Module(std::move(name)),
      weight_(AddParameter("weight", {out_features, in_features})) {
  weight_.AllowAnyFloat();
  if (bias) bias_ = &AddParameter("bias", {out_features});
}

Variable LinearLayer::Forward(const Variable& x) {
  Variable y = Linear(x, weight_.variable(),
                      bias_ == nullptr ? Variable() : bias_->variable());
  if (delta_ == nullptr) return y;
  return delta_->Forward(x, y);
}

void LinearLayer::Attach(std::unique_ptr<LinearDelta> delta) {
  ESPALIER_CHECK(delta_ == nullptr, name(), " has an adapter already");
  delta_ = delta.get();
  Adopt(std::move(delta));
}

}  // namespace espalier
