#ifndef ESPALIER_MODEL_CAUSAL_LM_H_
#define ESPALIER_MODEL_CAUSAL_LM_H_

#include "espalier/model/batch.h"
#include "espalier/model/layers/linear.h"
#include "espalier/model/module.h"

namespace espalier {

// A decoder-only language model of any family. Names are those of the
// Hugging Face checkpoint.
class CausalLm : public Module {
 public:
  // The states after the last norm, [T, H].
  virtual Variable HiddenStates(const Batch& batch) = 0;
  // The output head's weight, [V, H]; the embedding's where they are tied.
  virtual Parameter& head() = 0;
  virtual bool tied_head() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t num_layers() const = 0;

 protected:
  using Module::Module;
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_CAUSAL_LM_H_
