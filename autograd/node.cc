#include "espalier/autograd/node.h"

#include <utility>

#include "espalier/autograd/internal/state.h"
#include "espalier/autograd/mode.h"
#include "espalier/runtime/context.h"

namespace espalier {

namespace internal {

namespace {

// A node owns the nodes before it. The first one to go lists those that its
// end sets free, and they go one after another.
struct NodeDeleter {
  void operator()(autograd::Node* node) const {
    AutogradMode& mode = CurrentMode();
    if (mode.condemned != nullptr) {
      mode.condemned->push_back(node);
      return;
    }
    std::vector<autograd::Node*> condemned{node};
    mode.condemned = &condemned;
    while (!condemned.empty()) {
      autograd::Node* const next = condemned.back();
      condemned.pop_back();
      delete next;
    }
    mode.condemned = nullptr;
  }
};

}  // namespace

autograd::Edge EdgeTo(const std::shared_ptr<VariableState>& state) {
  autograd::Edge edge;
  edge.node = state->node;
  edge.output = state->output;
  if (edge.node == nullptr) edge.leaf = state;
  edge.shape = state->value.shape();
  edge.dtype = state->value.dtype();
  edge.device = &state->value.device();
  return edge;
}

std::shared_ptr<autograd::Node> NodeAccess::SetUp(
    std::unique_ptr<autograd::Node> node, std::vector<autograd::Edge> edges,
    uint64_t sequence, int num_outputs) {
  for (const autograd::Edge& edge : edges) {
    node->wanted_.push_back(static_cast<bool>(edge));
  }
  node->edges_ = std::move(edges);
  node->sequence_ = sequence;
  node->num_outputs_ = num_outputs;
  return std::shared_ptr<autograd::Node>(node.release(), NodeDeleter());
}

}  // namespace internal

namespace autograd {

bool NeedsGrad(const Variable& input) {
  return internal::CurrentMode().grad_enabled && input.needs_grad();
}

bool AnyNeedsGrad(std::initializer_list<const Variable*> inputs) {
  for (const Variable* input : inputs) {
    if (NeedsGrad(*input)) return true;
  }
  return false;
}

namespace {

template <typename Range, typename Get>
std::vector<Variable> RecordImpl(std::vector<Tensor> values,
                                 std::unique_ptr<Node> node,
                                 const Range& inputs, Get get) {
  std::vector<Variable> results;
  results.reserve(values.size());
  std::vector<Edge> edges;
  bool wanted = false;
  edges.reserve(inputs.size());
  for (const auto& item : inputs) {
    const Variable& input = get(item);
    Edge& edge = edges.emplace_back();
    if (!NeedsGrad(input)) continue;
    wanted = true;
    edge = internal::EdgeTo(internal::VariableState::Of(input));
  }
  if (!wanted) {
    for (Tensor& value : values) results.emplace_back(std::move(value));
    return results;
  }
  const uint64_t sequence = values.front().device().context().NextSequence();
  const std::shared_ptr<Node> shared =
      internal::NodeAccess::SetUp(std::move(node), std::move(edges), sequence,
                                  static_cast<int>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!IsFloat(values[i].dtype())) {
      results.emplace_back(std::move(values[i]));
      continue;
    }
    auto state = std::make_shared<internal::VariableState>();
    state->value = std::move(values[i]);
    state->needs_grad = true;
    state->node = shared;
    state->output = static_cast<int>(i);
    results.push_back(internal::VariableState::Wrap(std::move(state)));
  }
  return results;
}

}  // namespace

Variable Record(Tensor value, std::unique_ptr<Node> node,
                std::initializer_list<const Variable*> inputs) {
  std::vector<Tensor> values;
  values.push_back(std::move(value));
  return RecordImpl(
      std::move(values), std::move(node), inputs,
      [](const Variable* input) -> const Variable& { return *input; })[0];
}

Variable Record(Tensor value, std::unique_ptr<Node> node,
                absl::Span<const Variable> inputs) {
  std::vector<Tensor> values;
  values.push_back(std::move(value));
  return RecordMany(std::move(values), std::move(node), inputs)[0];
}

std::vector<Variable> RecordMany(std::vector<Tensor> values,
                                 std::unique_ptr<Node> node,
                                 absl::Span<const Variable> inputs) {
  ESPALIER_CHECK(!values.empty(), "a node without results");
  return RecordImpl(
      std::move(values), std::move(node), inputs,
      [](const Variable& input) -> const Variable& { return input; });
}

}  // namespace autograd
}  // namespace espalier
