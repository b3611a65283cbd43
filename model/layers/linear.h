#ifndef ESPALIER_MODEL_LAYERS_LINEAR_H_
#define ESPALIER_MODEL_LAYERS_LINEAR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "espalier/autograd/variable.h"
#include "espalier/model/module.h"
#include "espalier/ops/matmul/prepared_weight.h"

namespace espalier {

// What an adapter makes of a linear layer; implemented in lora/.
class LinearDelta : public Module {
 public:
  // x [T, in], y = x W^T + bias [T, out] -> the adapted y, same shape and
  // dtype.
  virtual Variable Forward(const Variable& x, const Variable& y) = 0;

 protected:
  using Module::Module;
};

// y = x W^T + bias, then the adapter; W [out_features, in_features].
class LinearLayer final : public Module {
 public:
  LinearLayer(std::string name, int64_t in_features, int64_t out_features,
              bool bias = false);

  int64_t in_features() const { return weight_.shape().dim(1); }
  int64_t out_features() const { return weight_.shape().dim(0); }
  // x [T, in_features] -> [T, out_features]
  Variable Forward(const Variable& x);
  // Lays the frozen weight out for the kernels, once; from then on Forward and
  // its gradient read that. The parameter keeps its rows, at no cost where they
  // are mapped file pages. After a later SetValue Forward fails INTERNAL until
  // Prepare is called again. Fails INTERNAL on a trainable weight.
  void Prepare(const PrepareOptions& options = {});
  // None: products read the weight in place and keep no copy.
  const std::optional<PreparedWeight>& prepared() const { return prepared_; }
  // At most once.
  void Attach(std::unique_ptr<LinearDelta> delta);
  LinearDelta* delta() { return delta_; }
  Parameter& weight() { return weight_; }

 private:
  Variable ForwardPrepared(const Variable& x, const Variable& bias) const;

  Parameter& weight_;
  Parameter* bias_ = nullptr;     // absent without a bias
  LinearDelta* delta_ = nullptr;  // a child
  std::optional<PreparedWeight> prepared_;
  std::weak_ptr<const void> prepared_from_;  // storage of the weight then
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_LINEAR_H_
