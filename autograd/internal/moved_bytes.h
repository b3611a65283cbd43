#ifndef ESPALIER_AUTOGRAD_INTERNAL_MOVED_BYTES_H_
#define ESPALIER_AUTOGRAD_INTERNAL_MOVED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/autograd/saved_hooks.h"

namespace espalier::internal {

// One storage that hooks took away, shared by the members that saved it.
struct MovedBytes {
  std::unique_ptr<autograd::PackedBytes> packed;  // until they are back
  Tensor bytes;                                   // from then on
  int64_t num_bytes = 0;
  Device* device = nullptr;
  MemoryTag tag = MemoryTag::kActivations;
};

// The members of one node that wait elsewhere.
struct MovedMembers {
  struct Member {
    size_t index;   // in the order of ForEachSaved
    Tensor window;  // the view, without its bytes
    std::shared_ptr<MovedBytes> moved;
  };
  std::vector<Member> members;
};

// Brings the node's members back. A storage stays on the device until the last
// node that saved it has run.
void RestoreMoved(autograd::Node& node);

}  // namespace espalier::internal

#endif  // ESPALIER_AUTOGRAD_INTERNAL_MOVED_BYTES_H_
