#include "espalier/model/layers/feed_forward.h"

#include <utility>

#include "espalier/ops/swiglu/swiglu.h"

namespace espalier {

SwiGluMlp::SwiGluMlp(std::string name, int64_t hidden_size,
                     int64_t intermediate_size, bool bias)
    : FeedForward(std::move(name)),
      gate_proj_(AddChild<LinearLayer>("gate_proj", hidden_size,
                                       intermediate_size, bias)),
      up_proj_(AddChild<LinearLayer>("up_proj", hidden_size, intermediate_size,
                                     bias)),
      down_proj_(AddChild<LinearLayer>("down_proj", intermediate_size,
                                       hidden_size, bias)) {}

Variable SwiGluMlp::Forward(const Variable& x) {
  return down_proj_.Forward(SwiGlu(gate_proj_.Forward(x), up_proj_.Forward(x)));
}

}  // namespace espalier
