#ifndef ESPALIER_AUTOGRAD_RECOMPUTE_H_
#define ESPALIER_AUTOGRAD_RECOMPUTE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/autograd/variable.h"

namespace espalier::autograd {

// What a region of the forward pass keeps for backward. Values and every
// gradient have the same bits under every policy.
enum class RecomputePolicy : uint8_t {
  // All saved tensors.
  kNone,
  // All but the results of cheap ops (Node::CanRecompute: norms, activations,
  // gates, casts up), which their nodes make again when a later node wants
  // them. Results of matmul and attention are never computed twice.
  kSelective,
  // Its inputs, decisions (autograd/memo.h) and which random numbers were taken
  // (autograd/rng_stream.h); all else is computed again.
  kFull,
};

using RegionFn =
    std::function<std::vector<Variable>(absl::Span<const Variable>)>;

// fn(inputs) as a region named `name`, which is also a Region of that name
// (autograd/saved.h). Inputs may be absent. Regions nest: the innermost policy
// holds, beside that a full region keeps nothing of the regions inside it until
// it runs again.
//
// A full region runs fn once without recording. In backward, when its turn
// comes, fn runs again on the kept inputs, its nodes take the region's place in
// the running walk, and gradients go straight to the makers of the inputs and
// to any other variables that fn uses (parameters, captured results), term by
// term in the order that they would have come in. For that, fn
// - must do the same again on the same inputs, and owns or outlives what it
//   captures until Backward is done;
// - leaves side effects out while Recomputing();
// - lets a variable made in it that needs a gradient out as a result only; its
//   use elsewhere fails INTERNAL; so does Backward inside fn.
// Fails INTERNAL, in Backward, when the second run does not do what the first
// did; a Failure of fn passes through. Under NoGrad, and where no result needs
// a gradient, nothing is kept.
std::vector<Variable> Recompute(RecomputePolicy policy, absl::string_view name,
                                absl::Span<const Variable> inputs,
                                const RegionFn& fn);

// The same for one result.
Variable RecomputeOne(
    RecomputePolicy policy, absl::string_view name,
    absl::Span<const Variable> inputs,
    const std::function<Variable(absl::Span<const Variable>)>& fn);

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_RECOMPUTE_H_
