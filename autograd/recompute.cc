#include "espalier/autograd/recompute.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"

#include "espalier/autograd/internal/recompute_node.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/saved.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/context.h"

namespace espalier {

namespace internal {

using Role = RegionFrame::Role;

RecomputeNode::RecomputeNode(std::shared_ptr<const std::string> name,
                             autograd::RegionFn fn,
                             absl::Span<const Variable> inputs)
    : name_(std::move(name)), fn_(std::move(fn)) {
  for (const Variable& input : inputs) {
    Input& kept = inputs_.emplace_back();
    if (!input) continue;
    kept.value = input.value();
    kept.leaf_storage = VariableState::Of(input)->leaf_storage;
    kept.source = VariableState::Of(input)->source;
    AddMemoryTag(kept.value.device());
  }
}

void RecomputeNode::AddMemoryTag(Device& device) {
  const auto same = [&](const auto& tag) { return tag.first == &device; };
  if (absl::c_any_of(tags_, same)) return;
  tags_.emplace_back(&device, device.memory_tag());
}

std::vector<Tensor> RecomputeNode::Backward(absl::Span<const Tensor>) {
  ESPALIER_CHECK(false, "region '", *name_, "' has no gradients of its own");
  return {};
}

void RecomputeNode::ForEachSaved(SavedVisitor visit) {
  for (Input& input : inputs_) visit("input", input.value);
  for (MemoStore::Entry& entry : store_.entries) {
    for (Tensor& tensor : entry.tensors) visit(entry.name, tensor);
  }
}

std::vector<Variable> RecomputeNode::MakeInputs(
    const std::vector<autograd::Edge>& edges) {
  std::vector<Variable> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].value) {
      inputs.emplace_back();
      continue;
    }
    if (edges[i].leaf != nullptr) {
      inputs.push_back(VariableState::Wrap(edges[i].leaf));
      continue;
    }
    // Stands for the variable of the first run: its gradient goes there.
    auto state = std::make_shared<VariableState>();
    state->value = std::move(inputs_[i].value);
    state->leaf_storage = inputs_[i].leaf_storage;
    state->source = std::move(inputs_[i].source);
    state->needs_grad = edges[i].node != nullptr;
    state->node = edges[i].node;
    state->output = edges[i].output;
    inputs.push_back(VariableState::Wrap(std::move(state)));
  }
  inputs_.clear();
  return inputs;
}

std::vector<Variable> RecomputeNode::Replay(
    const std::vector<autograd::Edge>& edges) {
  const std::vector<Variable> inputs = MakeInputs(edges);
  const autograd::RegionFn fn = std::exchange(fn_, nullptr);
  std::vector<std::unique_ptr<MemoryScope>> scopes;
  for (const auto& [device, tag] : tags_) {
    scopes.push_back(std::make_unique<MemoryScope>(*device, tag));
  }
  const autograd::Region region(NodeAccess::RegionOf(*this));
  const EnableGrad enable_grad;
  const ModeScope<bool> selective(&AutogradMode::selective, false);
  RegionFrame frame{nullptr, Role::kReplaying, name_, &store_};
  const ModeScope<RegionFrame*> scope(&AutogradMode::frame, &frame);
  // What is saved now is read at once.
  const ModeScope<autograd::SavedTensorScope*> stay(&AutogradMode::saved_scope,
                                                    nullptr);
  std::vector<Variable> outputs = fn(inputs);
  ESPALIER_CHECK(store_.next_entry == store_.entries.size() &&
                     store_.next_run == store_.runs.size(),
                 "recompute region '", *name_,
                 "' runs differently: it ends before ",
                 store_.next_entry < store_.entries.size()
                     ? store_.entries[store_.next_entry].name
                     : "its last random numbers");
  store_ = MemoStore();
  return outputs;
}

namespace {

// Results of the region in place of those of its first run, which have no
// node. A variable that was there before the region stays itself.
std::vector<Variable> WrapOutputs(
    const std::vector<Variable>& outputs,
    const std::shared_ptr<const std::string>& name,
    const std::shared_ptr<autograd::Node>& node) {
  absl::flat_hash_map<const VariableState*, Variable> wrapped;
  std::vector<Variable> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::shared_ptr<VariableState>& state = VariableState::Of(outputs[i]);
    if (state == nullptr || state->made_in != name) {
      results.push_back(outputs[i]);
      continue;
    }
    const auto [it, inserted] = wrapped.try_emplace(state.get());
    if (inserted) {
      auto result = std::make_shared<VariableState>();
      result->value = state->value;
      result->leaf_storage = state->leaf_storage;
      result->needs_grad = true;
      result->node = node;
      result->output = static_cast<int>(i);
      it->second = VariableState::Wrap(std::move(result));
    }
    results.push_back(it->second);
  }
  return results;
}

std::vector<Variable> RunFirst(absl::string_view name_text,
                               absl::Span<const Variable> inputs,
                               const autograd::RegionFn& fn) {
  const auto name = std::make_shared<const std::string>(name_text);
  auto node = std::make_unique<RecomputeNode>(name, fn, inputs);
  NodeInputs node_inputs;
  for (const Variable& input : inputs) node_inputs.Add(input);
  std::vector<Variable> outputs;
  {
    RegionFrame frame{CurrentMode().frame, Role::kRecording, name,
                      &node->store()};
    const ModeScope<RegionFrame*> scope(&AutogradMode::frame, &frame);
    outputs = fn(inputs);
  }
  Context* context = nullptr;
  for (const Variable& output : outputs) {
    if (!output) continue;
    node->AddMemoryTag(output.value().device());
    if (VariableState::Of(output)->made_in == name) {
      context = &output.value().device().context();
    }
  }
  if (context == nullptr) return outputs;  // no gradient comes through here
  return WrapOutputs(outputs, name,
                     NodeAccess::SetUp(std::move(node), std::move(node_inputs),
                                       context->NextSequence(),
                                       static_cast<int>(outputs.size())));
}

}  // namespace
}  // namespace internal

namespace autograd {

std::vector<Variable> Recompute(RecomputePolicy policy, absl::string_view name,
                                absl::Span<const Variable> inputs,
                                const RegionFn& fn) {
  const Region region(name);
  const internal::ModeScope<bool> selective(
      &internal::AutogradMode::selective,
      policy == RecomputePolicy::kSelective);
  if (policy == RecomputePolicy::kFull &&
      internal::CurrentMode().grad_enabled &&
      internal::RecordingFrame() == nullptr) {
    return internal::RunFirst(name, inputs, fn);
  }
  return fn(inputs);
}

Variable RecomputeOne(
    RecomputePolicy policy, absl::string_view name,
    absl::Span<const Variable> inputs,
    const std::function<Variable(absl::Span<const Variable>)>& fn) {
  return Recompute(policy, name, inputs, [fn](absl::Span<const Variable> in) {
    return std::vector<Variable>{fn(in)};
  })[0];
}

}  // namespace autograd
}  // namespace espalier
