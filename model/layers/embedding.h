#ifndef ESPALIER_MODEL_LAYERS_EMBEDDING_H_
#define ESPALIER_MODEL_LAYERS_EMBEDDING_H_

#include <cstdint>
#include <string>

#include "espalier/model/module.h"

namespace espalier {

// Rows of a table [V, H].
class EmbeddingLayer final : public Module {
 public:
  EmbeddingLayer(std::string name, int64_t vocab_size, int64_t width);
  // ids [T] i32 -> [T, H]. Fails on an id outside [0, V).
  Variable Forward(const Tensor& ids);
  Parameter& weight() { return weight_; }

 private:
  Parameter& weight_;
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_LAYERS_EMBEDDING_H_
