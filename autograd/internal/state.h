#ifndef ESPALIER_AUTOGRAD_INTERNAL_STATE_H_
#define ESPALIER_AUTOGRAD_INTERNAL_STATE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/autograd/internal/recompute_source.h"
#include "espalier/autograd/node.h"
#include "espalier/autograd/variable.h"

namespace espalier::internal {

struct VariableState {
  Tensor value;
  bool needs_grad = false;
  Tensor grad;                           // leaves only
  std::shared_ptr<autograd::Node> node;  // null for leaves
  int output = 0;
  // Whether the value's memory is that of a leaf made by the caller, or a view
  // of it; not of an op's result.
  bool leaf_storage = true;
  // Of a result that needs a gradient, made in the first run of a recompute
  // region: which one. No node is recorded there.
  std::shared_ptr<const std::string> made_in;
  // Of a result in a selective region, or a view of one: how to make it again.
  std::shared_ptr<RecomputeSource> source;

  static const std::shared_ptr<VariableState>& Of(const Variable& variable) {
    return variable.state_;
  }
  static Variable Wrap(std::shared_ptr<VariableState> state) {
    return Variable(std::move(state));
  }
};

// Where the gradient of a variable goes that needs one.
autograd::Edge EdgeTo(const std::shared_ptr<VariableState>& state);

// Whether recording on this thread, in a region's first run included, follows
// the gradient of `input`. Fails INTERNAL on a variable that got out of a
// region other than as its result.
bool IsFollowed(const Variable& input);

// What a node is recorded with.
struct NodeInputs {
  void Add(const Variable& input);
  std::vector<autograd::Edge> edges;  // one per input, empty where not followed
  bool followed = false;              // any of them
  std::vector<const void*> leaf_storages;
  std::vector<SourcedStorage> sources;
};

struct NodeAccess {
  static std::vector<autograd::Edge>& Edges(autograd::Node& node) {
    return node.edges_;
  }
  static int NumOutputs(const autograd::Node& node) {
    return node.num_outputs_;
  }
  static bool& Walked(autograd::Node& node) { return node.walked_; }
  static const std::shared_ptr<const std::string>& RegionOf(
      const autograd::Node& node) {
    return node.region_;
  }
  static const std::vector<const void*>& LeafStorages(
      const autograd::Node& node) {
    return node.leaf_storages_;
  }
  static std::shared_ptr<MovedMembers>& Moved(autograd::Node& node) {
    return node.moved_;
  }
  static std::shared_ptr<RecomputedMembers>& Recomputed(autograd::Node& node) {
    return node.recomputed_;
  }
  // Takes the node over for a graph. Graphs of any depth are taken apart
  // without recursion, whatever their nodes own.
  static std::shared_ptr<autograd::Node> SetUp(
      std::unique_ptr<autograd::Node> node, NodeInputs inputs,
      uint64_t sequence, int num_outputs);
};

}  // namespace espalier::internal

#endif  // ESPALIER_AUTOGRAD_INTERNAL_STATE_H_
