#include "espalier/autograd/saved.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "espalier/autograd/internal/moved_bytes.h"
#include "espalier/autograd/internal/state.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/node.h"

namespace espalier::autograd {

namespace {

using internal::NodeAccess;

std::shared_ptr<const std::string> PathTo(absl::string_view name) {
  const Region* const outer = internal::CurrentMode().region;
  if (outer == nullptr || outer->path() == nullptr) {
    return std::make_shared<const std::string>(name);
  }
  return std::make_shared<const std::string>(
      absl::StrCat(*outer->path(), "/", name));
}

// Every node that Backward(roots) would reach without running one, in the
// order of recording.
std::vector<Node*> ListNodes(absl::Span<const Variable> roots) {
  absl::flat_hash_set<const Node*> seen;
  std::vector<Node*> nodes;
  const auto add = [&](const std::shared_ptr<Node>& node) {
    if (node != nullptr && seen.insert(node.get()).second) {
      nodes.push_back(node.get());
    }
  };
  for (const Variable& root : roots) {
    if (root) add(internal::VariableState::Of(root)->node);
  }
  for (size_t next = 0; next < nodes.size(); ++next) {
    for (const Edge& edge : NodeAccess::Edges(*nodes[next])) add(edge.node);
    const auto& given = NodeAccess::Recomputed(*nodes[next]);
    if (given == nullptr) continue;
    for (const auto& member : given->members) add(member.source->node);
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) {
    return a->sequence() < b->sequence();
  });
  return nodes;
}

// Storages of leaf variables among those that the nodes saved.
absl::flat_hash_set<const void*> SavedLeaves(const std::vector<Node*>& nodes) {
  absl::flat_hash_set<const void*> leaves;
  for (Node* node : nodes) {
    // A leaf that a node did not save may be gone and its address in use again:
    // only what is both saved and listed by one node is certain.
    const std::vector<const void*>& listed = NodeAccess::LeafStorages(*node);
    node->ForEachSaved([&](absl::string_view, Tensor& saved) {
      if (saved && std::find(listed.begin(), listed.end(),
                             saved.storage_id()) != listed.end()) {
        leaves.insert(saved.storage_id());
      }
    });
  }
  return leaves;
}

int64_t& BytesOf(SavedBytes& bytes, const Tensor& tensor, bool leaf) {
  switch (tensor.storage_kind()) {
    case StorageKind::kFileMap:
      return bytes.mapped;
    case StorageKind::kHost:
      return bytes.lent;
    case StorageKind::kHeap:
      break;
  }
  return leaf ? bytes.leaves : bytes.activations;
}

}  // namespace

Region::Region(absl::string_view name) : Region(PathTo(name)) {}

Region::Region(std::shared_ptr<const std::string> path)
    : path_(std::move(path)), previous_(internal::CurrentMode().region) {
  internal::CurrentMode().region = this;
}

Region::~Region() { internal::CurrentMode().region = previous_; }

SavedReport CountSaved(absl::Span<const Variable> roots) {
  SavedReport report;
  absl::flat_hash_map<std::string, size_t> rows;
  absl::flat_hash_set<const void*> counted;
  const std::vector<Node*> nodes = ListNodes(roots);
  const absl::flat_hash_set<const void*> leaves = SavedLeaves(nodes);
  for (Node* node : nodes) {
    const auto& path = NodeAccess::RegionOf(*node);
    const std::string region = path == nullptr ? "" : *path;
    const auto [it, inserted] = rows.try_emplace(region, report.rows.size());
    if (inserted) report.rows.push_back({region, {}, 0});
    SavedReport::Row& row = report.rows[it->second];
    ++row.num_nodes;
    if (const auto& moved = NodeAccess::Moved(*node); moved != nullptr) {
      for (const internal::MovedMembers::Member& member : moved->members) {
        if (!counted.insert(member.moved.get()).second) continue;
        row.bytes.moved += member.moved->num_bytes;
        report.total.moved += member.moved->num_bytes;
      }
    }
    if (const auto& given = NodeAccess::Recomputed(*node); given != nullptr) {
      for (const internal::RecomputedMembers::Member& member : given->members) {
        if (!counted.insert(member.source.get()).second) continue;
        row.bytes.recomputed += member.source->storage_bytes;
        report.total.recomputed += member.source->storage_bytes;
      }
    }
    node->ForEachSaved([&](absl::string_view, Tensor& saved) {
      if (!saved || !counted.insert(saved.storage_id()).second) return;
      const bool leaf = leaves.contains(saved.storage_id());
      BytesOf(row.bytes, saved, leaf) += saved.storage_bytes();
      BytesOf(report.total, saved, leaf) += saved.storage_bytes();
    });
  }
  return report;
}

}  // namespace espalier::autograd
