#ifndef ESPALIER_AUTOGRAD_NODE_H_
#define ESPALIER_AUTOGRAD_NODE_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/autograd/variable.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

namespace internal {
struct MovedMembers;
struct NodeAccess;
struct RecomputedMembers;
}  // namespace internal

namespace autograd {

class Node;

// Where the gradient of a node's input goes, and what it must look like.
struct Edge {
  std::shared_ptr<Node> node;  // that made the input; null for a leaf
  int output = 0;              // which of the node's outputs
  std::shared_ptr<internal::VariableState> leaf;  // null unless a leaf
  Shape shape;
  DType dtype = kF32;
  Device* device = nullptr;
  explicit operator bool() const { return node != nullptr || leaf != nullptr; }
};

// One recorded op. Derived classes keep what Backward reads as named Tensor
// members and list them in ForEachSaved, so that saved memory can be counted,
// moved and recomputed. Save only what a wanted gradient needs.
class Node {
 public:
  Node() = default;
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual absl::string_view name() const = 0;

  // dy: one tensor per output, contiguous, read-only, absent where no gradient
  // arrived (at least one did). Returns one gradient per input, contiguous, of
  // the input's shape and dtype, absent where needs_grad(input) is false; it
  // may be dy itself or a view of it. Runs under NoGrad; new tensors are
  // counted as gradients.
  virtual std::vector<Tensor> Backward(absl::Span<const Tensor> dy) = 0;

  // Calls visit(name, member) for every saved tensor, absent ones included, in
  // the same order each time. A PackedWeight is not one: it belongs to the
  // model.
  using SavedVisitor = absl::FunctionRef<void(absl::string_view, Tensor&)>;
  virtual void ForEachSaved(SavedVisitor visit) = 0;

  // Cheap ops (norms, activations, gates): whether result number `output` can
  // be made again, with the same bits, from the saved tensors. In a selective
  // region later nodes then do not save it, and call Recompute before their
  // Backward, which is before this node's. The result takes a storage of its
  // own, of the same size. Asked before the node is recorded.
  virtual bool CanRecompute(int /*output*/) const { return false; }
  virtual Tensor Recompute(int output);

  // Whether the gradient of an input is wanted. Valid from Record() on.
  bool needs_grad(size_t input) const { return wanted_[input]; }
  uint64_t sequence() const { return sequence_; }

 private:
  friend struct internal::NodeAccess;
  std::vector<Edge> edges_;   // one per input, empty where not wanted
  std::vector<bool> wanted_;  // one per input
  uint64_t sequence_ = 0;     // order of recording
  int num_outputs_ = 1;
  bool walked_ = false;
  std::shared_ptr<const std::string> region_;  // null outside of regions
  // Storages of inputs that belong to leaf variables.
  std::vector<const void*> leaf_storages_;
  // Members that are elsewhere until the node runs; null for none.
  std::shared_ptr<internal::MovedMembers> moved_;
  std::shared_ptr<internal::RecomputedMembers> recomputed_;
};

// Whether the gradient of `input` will be wanted by a node recorded now: use it
// to decide what to save and allocate, never what to compute: values have the
// same bits either way. False in the first run of a recompute region.
bool NeedsGrad(const Variable& input);
bool AnyNeedsGrad(std::initializer_list<const Variable*> inputs);

// Wraps an op's result. The node is kept, and its Backward called, only if one
// of the inputs needs a gradient and recording is on. Absent inputs are legal.
Variable Record(Tensor value, std::unique_ptr<Node> node,
                std::initializer_list<const Variable*> inputs);
Variable Record(Tensor value, std::unique_ptr<Node> node,
                absl::Span<const Variable> inputs);
// The same for several results; those of integer dtype need no gradient.
std::vector<Variable> RecordMany(std::vector<Tensor> values,
                                 std::unique_ptr<Node> node,
                                 absl::Span<const Variable> inputs);

}  // namespace autograd
}  // namespace espalier

#endif  // ESPALIER_AUTOGRAD_NODE_H_
