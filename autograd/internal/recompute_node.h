#ifndef ESPALIER_AUTOGRAD_INTERNAL_RECOMPUTE_NODE_H_
#define ESPALIER_AUTOGRAD_INTERNAL_RECOMPUTE_NODE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/autograd/internal/region_frame.h"
#include "espalier/autograd/internal/state.h"
#include "espalier/autograd/node.h"
#include "espalier/autograd/recompute.h"

namespace espalier::internal {

// A full region after its first run. It has no gradients of its own: the walk
// puts the nodes of the second run in its place.
class RecomputeNode final : public autograd::Node {
 public:
  RecomputeNode(std::shared_ptr<const std::string> name, autograd::RegionFn fn,
                absl::Span<const Variable> inputs);
  absl::string_view name() const override { return *name_; }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dy) override;
  void ForEachSaved(SavedVisitor visit) override;

  MemoStore& store() { return store_; }
  // What new tensors on `device` count as in the second run.
  void AddMemoryTag(Device& device);
  // Runs fn again, recording. `edges`: of this node, taken out of it.
  std::vector<Variable> Replay(const std::vector<autograd::Edge>& edges);

 private:
  struct Input {
    Tensor value;  // absent for an absent input
    bool leaf_storage = true;
    std::shared_ptr<RecomputeSource> source;
  };
  std::vector<Variable> MakeInputs(const std::vector<autograd::Edge>& edges);

  const std::shared_ptr<const std::string> name_;
  autograd::RegionFn fn_;
  std::vector<Input> inputs_;
  MemoStore store_;
  std::vector<std::pair<Device*, MemoryTag>> tags_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_AUTOGRAD_INTERNAL_RECOMPUTE_NODE_H_
