#ifndef ESPALIER_AUTOGRAD_INTERNAL_RECOMPUTE_SOURCE_H_
#define ESPALIER_AUTOGRAD_INTERNAL_RECOMPUTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/tensor.h"

namespace espalier::internal {

// How a result of a cheap op can be had again. Shared by the variable and by
// the nodes that gave the result up.
struct RecomputeSource {
  std::shared_ptr<autograd::Node> node;
  int output = 0;
  int64_t storage_bytes = 0;
  Device* device = nullptr;
  MemoryTag tag = MemoryTag::kActivations;
  int num_users = 0;  // nodes that gave it up and have not run
  Tensor bytes;       // made again, until the last of them has run
};

// The members of one node that are made again when it runs.
struct RecomputedMembers {
  struct Member {
    size_t index;   // in the order of ForEachSaved
    Tensor window;  // the view, without its bytes
    std::shared_ptr<RecomputeSource> source;
  };
  std::vector<Member> members;
};

// A storage whose bytes can be had again.
struct SourcedStorage {
  const void* storage_id;
  std::shared_ptr<RecomputeSource> source;
};

// Takes from the node what it saved of these storages.
void GiveUpSaved(autograd::Node& node,
                 const std::vector<SourcedStorage>& sources);

// Gives the node all its saved tensors back: those made again, those that hooks
// moved away. Nodes that it depends on get theirs, too.
void RestoreSaved(autograd::Node& node);

}  // namespace espalier::internal

#endif  // ESPALIER_AUTOGRAD_INTERNAL_RECOMPUTE_SOURCE_H_
