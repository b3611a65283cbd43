#ifndef ESPALIER_AUTOGRAD_MEMO_H_
#define ESPALIER_AUTOGRAD_MEMO_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

#include "espalier/runtime/tensor.h"

// What front doors of ops tell the recompute regions (autograd/recompute.h)
// that they may run in.
namespace espalier::autograd {

// For decisions that the rest of a step depends on: expert ids, routing
// weights, dispatch counts. Returns compute(), or, where a full region runs for
// the second time, what it returned the first time: same handles, same bits.
// The decision is kept, whatever else the region gives up, and not made again.
// Fails INTERNAL when the second run asks for other names in another order.
std::vector<Tensor> Memo(absl::string_view name,
                         absl::FunctionRef<std::vector<Tensor>()> compute);

// The same for one tensor.
Tensor MemoOne(absl::string_view name, absl::FunctionRef<Tensor()> compute);

// Whether a region runs for the second time: what counts or logs must not do so
// again.
bool Recomputing();

// Whether nodes recorded now may rely on Node::Recompute of others. An op whose
// result can be made again from its inputs, and is larger than they are (a
// permutation to several experts, a cast up), saves them here, beside what
// Backward reads, and says so in CanRecompute.
bool SavesForRecompute();

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_MEMO_H_
