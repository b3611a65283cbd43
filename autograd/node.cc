#include "espalier/autograd/node.h"

#include <utility>

#include "absl/algorithm/container.h"

#include "espalier/autograd/internal/region_frame.h"
#include "espalier/autograd/internal/state.h"
#include "espalier/autograd/memo.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/saved.h"
#include "espalier/autograd/saved_hooks.h"
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

bool IsFollowed(const Variable& input) {
  if (!CurrentMode().grad_enabled || !input.needs_grad()) return false;
  const auto& made_in = VariableState::Of(input)->made_in;
  if (made_in == nullptr) return true;
  const RegionFrame* const frame = RecordingFrame();
  ESPALIER_CHECK(frame != nullptr && frame->name == made_in,
                 "a variable made in recompute region '", *made_in,
                 "' is used outside of it and is not its result");
  return true;
}

void NodeInputs::Add(const Variable& input) {
  autograd::Edge& edge = edges.emplace_back();
  if (!input) return;
  const auto& state = VariableState::Of(input);
  if (state->source != nullptr) {
    sources.push_back({state->value.storage_id(), state->source});
  }
  if (state->leaf_storage) leaf_storages.push_back(state->value.storage_id());
  if (!IsFollowed(input)) return;
  followed = true;
  if (state->made_in == nullptr) edge = EdgeTo(state);
}

std::shared_ptr<autograd::Node> NodeAccess::SetUp(
    std::unique_ptr<autograd::Node> node, NodeInputs inputs, uint64_t sequence,
    int num_outputs) {
  for (const autograd::Edge& edge : inputs.edges) {
    node->wanted_.push_back(static_cast<bool>(edge));
  }
  node->edges_ = std::move(inputs.edges);
  node->leaf_storages_ = std::move(inputs.leaf_storages);
  node->sequence_ = sequence;
  node->num_outputs_ = num_outputs;
  const autograd::Region* const region = CurrentMode().region;
  if (region != nullptr) node->region_ = region->path();
  if (CurrentMode().selective) GiveUpSaved(*node, inputs.sources);
  if (CurrentMode().saved_scope != nullptr) {
    CurrentMode().saved_scope->PackNode(*node);
  }
  return std::shared_ptr<autograd::Node>(node.release(), NodeDeleter());
}

}  // namespace internal

namespace autograd {

Tensor Node::Recompute(int output) {
  ESPALIER_CHECK(false, name(), ": result ", output, " is not made again");
  return Tensor();
}

bool NeedsGrad(const Variable& input) {
  return internal::IsFollowed(input) && internal::RecordingFrame() == nullptr;
}

bool AnyNeedsGrad(std::initializer_list<const Variable*> inputs) {
  for (const Variable* input : inputs) {
    if (NeedsGrad(*input)) return true;
  }
  return false;
}

namespace {

using internal::RecomputeSource;
using internal::VariableState;
using States = std::vector<std::shared_ptr<VariableState>>;

States MakeStates(std::vector<Tensor> values, const Node& node,
                  const internal::NodeInputs& inputs) {
  States states;
  for (Tensor& value : values) {
    ESPALIER_CHECK(static_cast<bool>(value), node.name(), ": result is absent");
    auto& state = states.emplace_back(std::make_shared<VariableState>());
    state->leaf_storage =
        absl::c_linear_search(inputs.leaf_storages, value.storage_id());
    state->needs_grad = inputs.followed && IsFloat(value.dtype());
    for (const internal::SourcedStorage& sourced : inputs.sources) {
      if (sourced.storage_id == value.storage_id()) {
        state->source = sourced.source;
      }
    }
    state->value = std::move(value);
  }
  return states;
}

// Gives the results that the node can make again a source, without the node
// yet. Whether there are any. Not for results without gradient beside others
// with: nothing would order their users before the node's own backward.
bool MakeSources(const Node& node, const States& states, bool recorded) {
  bool any = false;
  for (size_t i = 0; i < states.size(); ++i) {
    const Tensor& value = states[i]->value;
    if (states[i]->source != nullptr || states[i]->leaf_storage ||
        states[i]->needs_grad != recorded ||
        value.storage_kind() != StorageKind::kHeap ||
        !node.CanRecompute(static_cast<int>(i))) {
      continue;
    }
    auto source = std::make_shared<RecomputeSource>();
    source->output = static_cast<int>(i);
    source->storage_bytes = value.storage_bytes();
    source->device = &value.device();
    source->tag = value.device().memory_tag();
    states[i]->source = std::move(source);
    any = true;
  }
  return any;
}

std::vector<Variable> RecordImpl(std::vector<Tensor> values,
                                 std::unique_ptr<Node> node,
                                 internal::NodeInputs inputs) {
  const States states = MakeStates(std::move(values), *node, inputs);
  const internal::RegionFrame* const frame = internal::RecordingFrame();
  const bool recorded = inputs.followed && frame == nullptr;
  const bool made_again =
      SavesForRecompute() && MakeSources(*node, states, recorded);
  std::shared_ptr<Node> shared;
  if (recorded || made_again) {
    Context& context = states.front()->value.device().context();
    shared = internal::NodeAccess::SetUp(std::move(node), std::move(inputs),
                                         context.NextSequence(),
                                         static_cast<int>(states.size()));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    VariableState& state = *states[i];
    if (state.source != nullptr && state.source->node == nullptr) {
      state.source->node = shared;
    }
    if (!state.needs_grad) continue;
    state.node = shared;
    state.output = static_cast<int>(i);
    if (frame != nullptr) state.made_in = frame->name;
  }
  std::vector<Variable> results;
  results.reserve(states.size());
  for (const auto& state : states) {
    results.push_back(VariableState::Wrap(state));
  }
  return results;
}

}  // namespace

Variable Record(Tensor value, std::unique_ptr<Node> node,
                std::initializer_list<const Variable*> inputs) {
  internal::NodeInputs node_inputs;
  for (const Variable* input : inputs) node_inputs.Add(*input);
  std::vector<Tensor> values;
  values.push_back(std::move(value));
  return RecordImpl(std::move(values), std::move(node),
                    std::move(node_inputs))[0];
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
  internal::NodeInputs node_inputs;
  for (const Variable& input : inputs) node_inputs.Add(input);
  return RecordImpl(std::move(values), std::move(node), std::move(node_inputs));
}

}  // namespace autograd
}  // namespace espalier
