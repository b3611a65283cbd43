#ifndef ESPALIER_MODEL_LAYERS_FEED_FORWARD_H_
#define ESPALIER_MODEL_LAYERS_FEED_FORWARD_H_

#include <cstdint>
#include <string>

#include "espalier/model/layers/linear.h"
#include "espalier/model/module.h"

namespace espalier {

// What a decoder layer does to each token by itself.
class FeedForward : public Module {
 public:
  // x [T, H] -> [T, H]
  virtual Variable Forward(const Variable& x) = 0;

 protected:
  using Module::Module;
};

// y = down_proj(silu(gate_proj(x)) * up_proj(x)) (arXiv:2002.05202)
class SwiGluMlp final : public FeedForward {
 public:
  SwiGluMlp(std::string name, int64_t hidden_size, int64_t intermediate_size,
            bool bias = false);

  Variable Forward(const Variable& x) override;

 private:
  LinearLayer& gate_proj_;
  LinearLayer& up_proj_;
  LinearLayer& down_proj_;
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_FEED_FORWARD_H_
