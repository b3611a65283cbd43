#ifndef ESPALIER_AUTOGRAD_RECOMPUTE_H_
#define ESPALIER_AUTOGRAD_RECOMPUTE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/autograd/variable.h"

namespace espalier::autograd {

// What a region of the forward pass keeps for backward.
enum class RecomputePolicy : uint8_t {
  kNone,       // all saved tensors, as without a region
  kSelective,  // its inputs and what front doors mark Keep::kExpensive
  kFull,       // its inputs
};
// Both recomputing policies also keep Keep::kDecision results and which numbers
// RngStream::Take handed out (autograd/memo.h, autograd/rng_stream.h).

using RegionFn =
    std::function<std::vector<Variable>(absl::Span<const Variable>)>;

// fn(inputs) as a region named `name`. Values and every gradient have the same
// bits under every policy: in backward, when the region's turn comes, fn runs
// again on the kept inputs, its nodes take the region's place in the running
// walk, and gradients go straight to the makers of the inputs and to any other
// variables that fn uses (parameters, captured results), term by term in the
// order that they would have come in.
//
// fn must do the same again on the same inputs: it owns or outlives what it
// captures until Backward is done, and leaves side effects out while
// Recomputing(). A variable made in fn that needs a gradient may leave the
// region as a result only; elsewhere its use fails INTERNAL. Backward may not
// be called inside fn.
//
// Regions nest. While an outer region keeps nothing of an inner one beside
// decisions, the inner policy holds in the second run of the outer one: an
// expensive result is kept by a region if no region between asks for kFull.
// Under NoGrad, and where no result needs a gradient, nothing is kept.
//
// Inputs may be absent. A region counts as a Region of its name
// (autograd/saved.h), under every policy. Fails INTERNAL, in Backward, when the
// second run does not do what the first did; a Failure of fn passes through.
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
