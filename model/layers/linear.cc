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
  const Variable bias = bias_ == nullptr ? Variable() : bias_->variable();
  Variable y = prepared_ ? ForwardPrepared(x, bias)
                         : Linear(x, weight_.variable(), bias);
  if (delta_ == nullptr) return y;
  return delta_->Forward(x, y);
}

void LinearLayer::Prepare(const PrepareOptions& options) {
  const Variable& weight = weight_.variable();
  ESPALIER_CHECK(!weight.needs_grad(), weight_.name(),
                 " is trainable: a layout would not follow it");
  prepared_ = PrepareWeight(weight.value(), options);
  prepared_from_ = weight.value().weak_storage();
}

Variable LinearLayer::ForwardPrepared(const Variable& x,
                                      const Variable& bias) const {
  const auto storage = weight_.variable().value().weak_storage();
  const bool same = !storage.owner_before(prepared_from_) &&
                    !prepared_from_.owner_before(storage);
  ESPALIER_CHECK(same && !weight_.variable().needs_grad(), weight_.name(),
                 " has another value than the one prepared: prepare it again");
  return Linear(x, *prepared_, bias);
}

void LinearLayer::Attach(std::unique_ptr<LinearDelta> delta) {
  ESPALIER_CHECK(delta_ == nullptr, name(), " has an adapter already");
  delta_ = delta.get();
  Adopt(std::move(delta));
}

}  // namespace espalier
