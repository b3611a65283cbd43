#ifndef ESPALIER_MODEL_LAYERS_LINEAR_H_
#define ESPALIER_MODEL_LAYERS_LINEAR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "espalier/autograd/variable.h"
#include "espalier/model/module.h"

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
  // At most once.
  void Attach(std::unique_ptr<LinearDelta> delta);
  LinearDelta* delta() { return delta_; }
  Parameter& weight() { return weight_; }

 private:
  Parameter& weight_;
  Parameter* bias_ = nullptr;     // absent without a bias
  LinearDelta* delta_ = nullptr;  // a child
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_LINEAR_H_
