#ifndef ESPALIER_AUTOGRAD_MEMO_H_
#define ESPALIER_AUTOGRAD_MEMO_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

#include "espalier/runtime/tensor.h"

// What front doors of ops tell the recompute regions (autograd/recompute.h)
// that they may run in.
namespace espalier::autograd {

enum class Keep : uint8_t {
  // Costly to compute again (matmul, attention): kept by selective regions,
  // computed again by full ones.
  kExpensive,
  // A decision that the rest of the step depends on (expert ids, routing
  // weights, dispatch counts): kept by every region, never made again.
  kDecision,
};

// compute(), or, where a region runs again that kept the result of the first
// run, that result: same handles, same bits. The result is what the op would
// allocate: everything that its node saves beside its inputs, too.
// Fails INTERNAL when the second run asks for other names in another order.
std::vector<Tensor> Memo(absl::string_view name, Keep keep,
                         absl::FunctionRef<std::vector<Tensor>()> compute);

// The same for one tensor.
Tensor MemoOne(absl::string_view name, Keep keep,
               absl::FunctionRef<Tensor()> compute);

// Whether a recompute region runs for the second time: what counts or logs
// must not do so again.
bool Recomputing();

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_MEMO_H_
