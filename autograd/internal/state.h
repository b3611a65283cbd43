#ifndef ESPALIER_AUTOGRAD_INTERNAL_STATE_H_
#define ESPALIER_AUTOGRAD_INTERNAL_STATE_H_

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/autograd/variable.h"

namespace espalier::internal {

struct VariableState {
  Tensor value;
  bool needs_grad = false;
  Tensor grad;                           // leaves only
  std::shared_ptr<autograd::Node> node;  // null for leaves
  int output = 0;

  static const std::shared_ptr<VariableState>& Of(const Variable& variable) {
    return variable.state_;
  }
  static Variable Wrap(std::shared_ptr<VariableState> state) {
    return Variable(std::move(state));
  }
};

// Where the gradient of a variable goes that needs one.
autograd::Edge EdgeTo(const std::shared_ptr<VariableState>& state);

struct NodeAccess {
  static std::vector<autograd::Edge>& Edges(autograd::Node& node) {
    return node.edges_;
  }
  static int NumOutputs(const autograd::Node& node) {
    return node.num_outputs_;
  }
  static bool& Walked(autograd::Node& node) { return node.walked_; }
  // Takes the node over for a graph. Graphs of any depth are taken apart
  // without recursion, whatever their nodes own.
  static std::shared_ptr<autograd::Node> SetUp(
      std::unique_ptr<autograd::Node> node, std::vector<autograd::Edge> edges,
      uint64_t sequence, int num_outputs);
};

}  // namespace espalier::internal

#endif  // ESPALIER_AUTOGRAD_INTERNAL_STATE_H_
