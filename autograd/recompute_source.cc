#include "espalier/autograd/internal/recompute_source.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "espalier/autograd/internal/moved_bytes.h"
#include "espalier/autograd/internal/state.h"
#include "espalier/runtime/check.h"

namespace espalier::internal {

namespace {

// Has the bytes made again if they are not there.
void Remake(RecomputeSource& source) {
  if (source.bytes) return;
  autograd::Node& node = *source.node;
  ESPALIER_CHECK(!NodeAccess::Walked(node), node.name(),
                 ": this graph was walked before");
  const MemoryScope scope(*source.device, source.tag);
  const Tensor result = node.Recompute(source.output);
  ESPALIER_CHECK(result.is_contiguous() &&
                     result.storage_bytes() == source.storage_bytes &&
                     &result.device() == source.device,
                 node.name(), ": result ", source.output, " made again is ",
                 ToString(result), ", expected ", source.storage_bytes,
                 " bytes on ", ToString(source.device->type()));
  source.bytes = result.AsBytes();
}

void RestoreOne(autograd::Node& node) {
  RestoreMoved(node);
  const auto recomputed = std::exchange(NodeAccess::Recomputed(node), nullptr);
  if (recomputed == nullptr) return;
  size_t index = 0;
  auto next = recomputed->members.begin();
  node.ForEachSaved([&](absl::string_view, Tensor& saved) {
    if (next == recomputed->members.end() || next->index != index++) return;
    RecomputeSource& source = *next->source;
    Remake(source);
    saved = next->window.OnBytes(source.bytes);
    if (--source.num_users == 0) source.bytes = Tensor();
    ++next;
  });
}

}  // namespace

void GiveUpSaved(autograd::Node& node,
                 const std::vector<SourcedStorage>& sources) {
  auto all = std::make_shared<RecomputedMembers>();
  size_t next_index = 0;
  node.ForEachSaved([&](absl::string_view, Tensor& saved) {
    const size_t index = next_index++;
    if (!saved) return;
    const auto it = std::find_if(
        sources.begin(), sources.end(), [&](const SourcedStorage& sourced) {
          return sourced.storage_id == saved.storage_id();
        });
    if (it == sources.end()) return;
    ++it->source->num_users;
    all->members.push_back({index, saved.WithoutBytes(), it->source});
    saved = Tensor();
  });
  if (!all->members.empty()) NodeAccess::Recomputed(node) = std::move(all);
}

void RestoreSaved(autograd::Node& node) {
  if (NodeAccess::Recomputed(node) == nullptr) {
    RestoreMoved(node);
    return;
  }
  std::vector<autograd::Node*> needed{&node};
  absl::flat_hash_set<const autograd::Node*> seen{&node};
  for (size_t next = 0; next < needed.size(); ++next) {
    const auto& recomputed = NodeAccess::Recomputed(*needed[next]);
    if (recomputed == nullptr) continue;
    for (const RecomputedMembers::Member& member : recomputed->members) {
      autograd::Node* const source = member.source->node.get();
      if (member.source->bytes || !seen.insert(source).second) continue;
      needed.push_back(source);
    }
  }
  // What a node is made from was recorded before it.
  std::sort(needed.begin(), needed.end(),
            [](const autograd::Node* a, const autograd::Node* b) {
              return a->sequence() < b->sequence();
            });
  for (autograd::Node* each : needed) RestoreOne(*each);
}

}  // namespace espalier::internal
