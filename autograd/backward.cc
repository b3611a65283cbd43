#include "espalier/autograd/backward.h"

#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "espalier/autograd/internal/accumulate.h"
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
      AddToLeaf(*edge.leaf, std::move(gradient));
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

 private:
  // A leaf owns its gradient alone: callers scale and clip it in place.
  static void AddToLeaf(internal::VariableState& leaf, Tensor gradient) {
    if (!leaf.grad && gradient.use_count() > 1) {
      gradient = gradient.CopyTo(gradient.device());
    }
    internal::Accumulate(leaf.grad, std::move(gradient));
  }

  absl::flat_hash_map<uint64_t, Pending> pending_;
  std::priority_queue<uint64_t> order_;
};

Tensor OneFor(const Variable& root) {
  const Tensor& value = root.value();
  ESPALIER_CHECK(value.num_elements() == 1,
                 "backward without a cotangent from ", ToString(value.shape()));
  switch (value.dtype()) {
    case kF64: {
      const double one = 1;
      return Tensor::FromHost<double>(value.device(), value.shape(), {&one, 1});
    }
    case kF32: {
      const float one = 1;
      return Tensor::FromHost<float>(value.device(), value.shape(), {&one, 1});
    }
    case kBF16: {
      const BFloat16 one(1.0f);
      return Tensor::FromHost<BFloat16>(value.device(), value.shape(),
                                        {&one, 1});
    }
    default:
      ESPALIER_CHECK(false, "backward from ", ToString(value));
      return Tensor();
  }
}

void RunNode(Pending pending, Frontier& frontier) {
  Node& node = *pending.node;
  ESPALIER_CHECK(!internal::NodeAccess::Edges(node).empty(), node.name(),
                 ": this graph was walked before");
  const std::vector<Edge> edges = std::move(internal::NodeAccess::Edges(node));
  internal::NodeAccess::Edges(node).clear();
  std::vector<Tensor> gradients = node.Backward(pending.dy);
  pending.dy.clear();
  node.ForEachSaved([](absl::string_view, Tensor& saved) { saved = Tensor(); });
  ESPALIER_CHECK(gradients.size() == edges.size(), node.name(),
                 ": backward gave ", gradients.size(), " gradients for ",
                 edges.size(), " inputs");
  for (size_t i = 0; i < edges.size(); ++i) {
    ESPALIER_CHECK(
        static_cast<bool>(gradients[i]) == static_cast<bool>(edges[i]),
        node.name(), ": input ", i,
        edges[i] ? " got no gradient" : " needs no gradient");
    if (edges[i]) frontier.Add(edges[i], std::move(gradients[i]));
  }
}

}  // namespace

void Backward(absl::Span<const Variable> roots,
              absl::Span<const Tensor> cotangents) {
  ESPALIER_CHECK(roots.size() == cotangents.size(), roots.size(), " roots, ",
                 cotangents.size(), " cotangents");
  const NoGrad no_grad;
  Frontier frontier;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Variable& root = roots[i];
    if (!root.needs_grad()) continue;
    Tensor cotangent = cotangents[i] ? cotangents[i] : OneFor(root);
    ESPALIER_CHECK(
        cotangent.shape() == root.shape() && cotangent.dtype() == root.dtype(),
        "cotangent is ", ToString(cotangent), " for ", ToString(root.value()));
    const auto& state = internal::VariableState::Of(root);
    Edge edge{state->node, state->output, nullptr};
    if (edge.node == nullptr) {
      edge.leaf = state;
    }
    frontier.Add(edge, std::move(cotangent));
  }
  while (!frontier.empty()) RunNode(frontier.Pop(), frontier);
}

void Backward(const Variable& root, const Tensor& cotangent) {
  Backward(absl::MakeConstSpan(&root, 1), absl::MakeConstSpan(&cotangent, 1));
}

}  // namespace espalier::autograd
