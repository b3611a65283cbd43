#include "espalier/model/layers/embedding.h"

#include <utility>

#include "espalier/ops/embedding/embedding.h"

namespace espalier {

EmbeddingLayer::EmbeddingLayer(std::string name, int64_t vocab_size,
                               int64_t width)
    : Module(std::move(name)),
      weight_(AddParameter("weight", {vocab_size, width})) {}

Variable EmbeddingLayer::Forward(const Tensor& ids) {
  return Embedding(weight_.variable(), ids);
}

}  // namespace espalier
