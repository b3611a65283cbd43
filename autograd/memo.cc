#include "espalier/autograd/memo.h"

#include <string>
#include <utility>

#include "espalier/autograd/internal/region_frame.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/rng_stream.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace internal {

namespace {

using Role = RegionFrame::Role;

// Which regions in course take part in keeping a result.
struct Keepers {
  RegionFrame* source = nullptr;  // kept it in its first run
  RegionFrame* sink = nullptr;    // keeps it for its second
};

Keepers FindKeepers(autograd::Keep keep) {
  Keepers keepers;
  for (RegionFrame* f = CurrentMode().frame; f != nullptr; f = f->parent) {
    if (keep == autograd::Keep::kExpensive &&
        f->policy == autograd::RecomputePolicy::kFull) {
      break;
    }
    if (f->role == Role::kRecording) keepers.sink = f;
    if (f->role == Role::kReplaying) keepers.source = f;
  }
  return keepers;
}

}  // namespace

const RegionFrame* RecordingFrame() {
  for (const RegionFrame* f = CurrentMode().frame; f != nullptr;
       f = f->parent) {
    if (f->role == Role::kRecording) return f;
  }
  return nullptr;
}

}  // namespace internal

namespace autograd {

std::vector<Tensor> Memo(absl::string_view name, Keep keep,
                         absl::FunctionRef<std::vector<Tensor>()> compute) {
  const internal::Keepers keepers = internal::FindKeepers(keep);
  std::vector<Tensor> result;
  if (keepers.source != nullptr) {
    internal::MemoStore& store = *keepers.source->store;
    const bool more = store.next_entry < store.entries.size();
    ESPALIER_CHECK(more && store.entries[store.next_entry].name == name,
                   "recompute region '", *keepers.source->name,
                   "' runs differently: ", name, " in place of ",
                   more ? store.entries[store.next_entry].name : "the end");
    result = std::move(store.entries[store.next_entry++].tensors);
  } else {
    result = compute();
  }
  if (keepers.sink != nullptr) {
    keepers.sink->store->entries.push_back({std::string(name), result});
  }
  return result;
}

Tensor MemoOne(absl::string_view name, Keep keep,
               absl::FunctionRef<Tensor()> compute) {
  std::vector<Tensor> result = Memo(name, keep, [&] {
    std::vector<Tensor> one;
    one.push_back(compute());
    return one;
  });
  return std::move(result[0]);
}

bool Recomputing() {
  for (const internal::RegionFrame* f = internal::CurrentMode().frame;
       f != nullptr; f = f->parent) {
    if (f->role == internal::Role::kReplaying) return true;
  }
  return false;
}

RandomRun RngStream::Take(uint64_t count) {
  const internal::Keepers keepers = internal::FindKeepers(Keep::kDecision);
  RandomRun run{rng_, position_};
  if (keepers.source != nullptr) {
    internal::MemoStore& store = *keepers.source->store;
    ESPALIER_CHECK(store.next_run < store.runs.size(), "recompute region '",
                   *keepers.source->name,
                   "' runs differently: more random numbers");
    run = store.runs[store.next_run++];
  } else {
    constexpr uint64_t kBatch = Rng::kBatch;
    position_ += (count + kBatch - 1) / kBatch * kBatch;
  }
  if (keepers.sink != nullptr) keepers.sink->store->runs.push_back(run);
  return run;
}

}  // namespace autograd
}  // namespace espalier
