#include "espalier/autograd/backward.h"

#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "espalier/autograd/internal/accumulate.h"
#include "espalier/autograd/internal/recompute_node.h"
#include "espalier/autograd/internal/recompute_source.h"
#include "espalier/autograd/internal/state.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/node.h"
#include "espalier/runtime/check.h"

namespace espalier::autograd {

namespace {

struct Pending {
  std::shared_ptr<Node> node;
  std::vector<Tensor> dy;  // one per output
};

// Gradients on their way, by node; the latest recorded node is next. Every
// consumer of a node was recorded after it, so a popped node is complete.
class Frontier {
 public:
  void Add(const Edge& edge, Tensor gradient) {
    if (edge.leaf != nullptr) {
      AddToLeaf(edge.leaf, std::move(gradient));
      return;
    }
    const uint64_t sequence = edge.node->sequence();
    auto [it, inserted] = pending_.try_emplace(sequence);
    if (inserted) {
      it->second.node = edge.node;
      it->second.dy.resize(
          static_cast<size_t>(internal::NodeAccess::NumOutputs(*edge.node)));
      order_.push(sequence);
    }
    // Each context counts its own nodes.
    ESPALIER_CHECK(it->second.node == edge.node, edge.node->name(), " and ",
                   it->second.node->name(),
                   " are nodes of two contexts; walk their graphs one by one");
    internal::Accumulate(it->second.dy[static_cast<size_t>(edge.output)],
                         std::move(gradient));
  }

  bool empty() const { return order_.empty(); }

  Pending Pop() {
    const uint64_t sequence = order_.top();
    order_.pop();
    const auto it = pending_.find(sequence);
    Pending pending = std::move(it->second);
    pending_.erase(it);
    return pending;
  }

  // Hands the totals of this walk to the leaves: to all or, where there is no
  // memory for a gradient that someone else holds too, to none.
  void FinishLeaves() {
    for (const LeafTotal& total : leaves_) {
      Tensor& grad = total.leaf->grad;
      if (grad && !internal::IsExclusive(grad)) grad = internal::Own(grad);
    }
    for (LeafTotal& total : leaves_) {
      internal::Accumulate(total.leaf->grad, std::move(total.sum));
    }
  }

 private:
  struct LeafTotal {
    std::shared_ptr<internal::VariableState> leaf;
    Tensor sum;
  };

  void AddToLeaf(const std::shared_ptr<internal::VariableState>& leaf,
                 Tensor gradient) {
    const auto [it, inserted] =
        leaf_index_.try_emplace(leaf.get(), leaves_.size());
    if (inserted) {
      leaves_.push_back({leaf, internal::Own(std::move(gradient))});
      return;
    }
    internal::Accumulate(leaves_[it->second].sum, std::move(gradient));
  }

  absl::flat_hash_map<uint64_t, Pending> pending_;
  std::priority_queue<uint64_t> order_;
  absl::flat_hash_map<const internal::VariableState*, size_t> leaf_index_;
  std::vector<LeafTotal> leaves_;  // in the order of their first term
};

// Counts what is made during a walk as gradients, on every device it meets.
class GradientScopes {
 public:
  void Cover(Device& device) {
    for (const auto& [covered, scope] : scopes_) {
      if (covered == &device) return;
    }
    scopes_.emplace_back(
        &device, std::make_unique<MemoryScope>(device, MemoryTag::kGradients));
  }

 private:
  std::vector<std::pair<Device*, std::unique_ptr<MemoryScope>>> scopes_;
};

template <typename T>
Tensor Filled(const Tensor& like, T value) {
  return Tensor::FromHost<T>(like.device(), like.shape(), {&value, 1});
}

Tensor OneFor(const Tensor& value) {
  ESPALIER_CHECK(value.num_elements() == 1,
                 "backward without a cotangent from ", ToString(value));
  switch (value.dtype()) {
    case kF64:
      return Filled<double>(value, 1);
    case kF32:
      return Filled<float>(value, 1);
    case kBF16:
      return Filled<BFloat16>(value, BFloat16(1.0f));
    case kF16:
      return Filled<Float16>(value, Float16(1.0f));
    default:
      ESPALIER_CHECK(false, "backward from ", ToString(value));
      return Tensor();
  }
}

void CheckGradients(const Node& node, const std::vector<Edge>& edges,
                    const std::vector<Tensor>& gradients) {
  ESPALIER_CHECK(gradients.size() == edges.size(), node.name(),
                 ": backward gave ", gradients.size(), " gradients for ",
                 edges.size(), " inputs");
  for (size_t i = 0; i < edges.size(); ++i) {
    const Edge& edge = edges[i];
    const Tensor& gradient = gradients[i];
    ESPALIER_CHECK(
        static_cast<bool>(gradient) == static_cast<bool>(edge), node.name(),
        ": input ", i,
        edge ? " got no gradient" : " needs no gradient and got one");
    if (!edge) continue;
    ESPALIER_CHECK(gradient.shape() == edge.shape &&
                       gradient.dtype() == edge.dtype &&
                       &gradient.device() == edge.device,
                   node.name(), ": gradient of input ", i, " is ",
                   ToString(gradient), ", expected ", ToString(edge.dtype), " ",
                   ToString(edge.shape), " on ", ToString(edge.device->type()));
    ESPALIER_CHECK(gradient.is_contiguous(), node.name(),
                   ": gradient of input ", i, " is a strided view of ",
                   ToString(gradient));
  }
}

// Runs the region again and lets its gradients in where it was left. The new
// nodes are later than all that wait, so they run next, as they would have
// without the region.
void RunRegion(internal::RecomputeNode& region, const std::vector<Edge>& edges,
               std::vector<Tensor> dy, Frontier& frontier) {
  const std::vector<Variable> outputs = region.Replay(edges);
  ESPALIER_CHECK(outputs.size() == dy.size(), "recompute region '",
                 region.name(), "' runs differently: ", outputs.size(),
                 " results, before ", dy.size());
  for (size_t i = 0; i < dy.size(); ++i) {
    if (!dy[i]) continue;
    const Variable& output = outputs[i];
    ESPALIER_CHECK(output.needs_grad() && output.shape() == dy[i].shape() &&
                       output.dtype() == dy[i].dtype(),
                   "recompute region '", region.name(),
                   "' runs differently: result ", i, " is ",
                   output ? ToString(output.value()) : "absent",
                   output.needs_grad() ? "" : " without gradient", ", before ",
                   ToString(dy[i]));
    frontier.Add(internal::EdgeTo(internal::VariableState::Of(output)),
                 std::move(dy[i]));
  }
}

void RunNode(Pending pending, Frontier& frontier, GradientScopes& scopes) {
  Node& node = *pending.node;
  ESPALIER_CHECK(!internal::NodeAccess::Walked(node), node.name(),
                 ": this graph was walked before");
  internal::NodeAccess::Walked(node) = true;
  const std::vector<Edge> edges = std::move(internal::NodeAccess::Edges(node));
  internal::NodeAccess::Edges(node).clear();
  for (const Edge& edge : edges) {
    if (edge) scopes.Cover(*edge.device);
  }
  internal::RestoreSaved(node);
  if (auto* region = dynamic_cast<internal::RecomputeNode*>(&node)) {
    RunRegion(*region, edges, std::move(pending.dy), frontier);
    return;
  }
  std::vector<Tensor> gradients = node.Backward(pending.dy);
  pending.dy.clear();
  node.ForEachSaved([](absl::string_view, Tensor& saved) { saved = Tensor(); });
  CheckGradients(node, edges, gradients);
  for (size_t i = 0; i < edges.size(); ++i) {
    if (edges[i]) frontier.Add(edges[i], std::move(gradients[i]));
  }
}

}  // namespace

void Backward(absl::Span<const Variable> roots,
              absl::Span<const Tensor> cotangents) {
  ESPALIER_CHECK(roots.size() == cotangents.size(), roots.size(), " roots, ",
                 cotangents.size(), " cotangents");
  ESPALIER_CHECK(internal::CurrentMode().frame == nullptr,
                 "backward inside a recompute region");
  const NoGrad no_grad;
  Frontier frontier;
  GradientScopes scopes;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Variable& root = roots[i];
    if (!root.needs_grad()) continue;
    ESPALIER_CHECK(internal::VariableState::Of(root)->made_in == nullptr,
                   "backward from a variable that is not its region's result");
    scopes.Cover(root.value().device());
    Tensor cotangent = cotangents[i] ? cotangents[i] : OneFor(root.value());
    ESPALIER_CHECK(cotangent.shape() == root.shape() &&
                       cotangent.dtype() == root.dtype() &&
                       &cotangent.device() == &root.value().device() &&
                       cotangent.is_contiguous(),
                   "cotangent is ", ToString(cotangent), " for ",
                   ToString(root.value()));
    frontier.Add(internal::EdgeTo(internal::VariableState::Of(root)),
                 std::move(cotangent));
  }
  while (!frontier.empty()) RunNode(frontier.Pop(), frontier, scopes);
  frontier.FinishLeaves();
}

void Backward(const Variable& root, const Tensor& cotangent) {
  Backward(absl::MakeConstSpan(&root, 1), absl::MakeConstSpan(&cotangent, 1));
}

}  // namespace espalier::autograd
