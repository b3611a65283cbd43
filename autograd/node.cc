#include "espalier/autograd/node.h"

#include <utility>

#include "espalier/autograd/internal/state.h"
#include "espalier/autograd/mode.h"
#include "espalier/runtime/context.h"

namespace espalier::autograd {

Node::~Node() {
  std::vector<Edge> pending = std::move(edges_);
  while (!pending.empty()) {
    Edge edge = std::move(pending.back());
    pending.pop_back();
    if (edge.node != nullptr && edge.node.use_count() == 1) {
      for (Edge& next : edge.node->edges_) pending.push_back(std::move(next));
      edge.node->edges_.clear();
    }
  }
}

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
    const auto& state = internal::VariableState::Of(input);
    wanted = true;
    edge.node = state->node;
    edge.output = state->output;
    if (edge.node == nullptr) edge.leaf = state;
  }
  if (!wanted) {
    for (Tensor& value : values) results.emplace_back(std::move(value));
    return results;
  }
  const uint64_t sequence = values.front().device().context().NextSequence();
  std::shared_ptr<Node> shared = std::move(node);
  internal::NodeAccess::SetUp(*shared, std::move(edges), sequence,
                              static_cast<int>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
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

}  // namespace espalier::autograd
