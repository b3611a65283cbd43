#ifndef ESPALIER_AUTOGRAD_INTERNAL_REGION_FRAME_H_
#define ESPALIER_AUTOGRAD_INTERNAL_REGION_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "espalier/autograd/rng_stream.h"
#include "espalier/runtime/tensor.h"

namespace espalier::internal {

// What a region's first run leaves for its second.
struct MemoStore {
  struct Entry {
    std::string name;
    std::vector<Tensor> tensors;
  };
  std::vector<Entry> entries;
  size_t next_entry = 0;
  std::vector<autograd::RandomRun> runs;
  size_t next_run = 0;
};

// A run of a full region's fn; the frames of a thread form a stack. Regions
// inside a first run are plain calls, so that at most one frame records; a walk
// starts outside of all, so that at most one, the first, replays.
struct RegionFrame {
  enum class Role : uint8_t {
    kRecording,  // first run: no nodes, results know whether they need grad
    kReplaying,  // second run: nodes are recorded
  };
  RegionFrame* parent;
  Role role;
  // Its name; the object also tells which run a variable was made in.
  std::shared_ptr<const std::string> name;
  MemoStore* store;
};

// The region whose first run this is; null when nodes are recorded.
const RegionFrame* RecordingFrame();

}  // namespace espalier::internal

#endif  // ESPALIER_AUTOGRAD_INTERNAL_REGION_FRAME_H_
