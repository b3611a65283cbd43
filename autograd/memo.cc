#include "espalier/autograd/memo.h"

#include <string>
#include <utility>

#include "espalier/autograd/internal/region_frame.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/rng_stream.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace internal {

using Role = RegionFrame::Role;

namespace {

// The frame of a role among those in course; null for none. There is at most
// one of each.
RegionFrame* FindFrame(Role role) {
  for (RegionFrame* f = CurrentMode().frame; f != nullptr; f = f->parent) {
    if (f->role == role) return f;
  }
  return nullptr;
}

}  // namespace

const RegionFrame* RecordingFrame() { return FindFrame(Role::kRecording); }

}  // namespace internal

namespace autograd {

using internal::FindFrame;
using internal::MemoStore;
using internal::RegionFrame;
using internal::Role;

std::vector<Tensor> Memo(absl::string_view name,
                         absl::FunctionRef<std::vector<Tensor>()> compute) {
  std::vector<Tensor> result;
  if (const RegionFrame* source = FindFrame(Role::kReplaying)) {
    MemoStore& store = *source->store;
    const bool more = store.next_entry < store.entries.size();
    ESPALIER_CHECK(more && store.entries[store.next_entry].name == name,
                   "recompute region '", *source->name,
                   "' runs differently: ", name, " in place of ",
                   more ? store.entries[store.next_entry].name : "the end");
    result = std::move(store.entries[store.next_entry++].tensors);
  } else {
    result = compute();
  }
  if (const RegionFrame* sink = FindFrame(Role::kRecording)) {
    sink->store->entries.push_back({std::string(name), result});
  }
  return result;
}

Tensor MemoOne(absl::string_view name, absl::FunctionRef<Tensor()> compute) {
  std::vector<Tensor> result = Memo(name, [&] {
    std::vector<Tensor> one;
    one.push_back(compute());
    return one;
  });
  return std::move(result[0]);
}

bool Recomputing() { return FindFrame(Role::kReplaying) != nullptr; }

bool SavesForRecompute() {
  const internal::AutogradMode& mode = internal::CurrentMode();
  return mode.selective && mode.grad_enabled &&
         internal::RecordingFrame() == nullptr;
}

RandomRun RngStream::Take(uint64_t count) {
  RandomRun run{rng_, position_};
  if (const RegionFrame* source = FindFrame(Role::kReplaying)) {
    MemoStore& store = *source->store;
    ESPALIER_CHECK(store.next_run < store.runs.size(), "recompute region '",
                   *source->name, "' runs differently: more random numbers");
    run = store.runs[store.next_run++];
  } else {
    constexpr uint64_t kBatch = Rng::kBatch;
    position_ += RoundUp(count, kBatch);
  }
  if (const RegionFrame* sink = FindFrame(Role::kRecording)) {
    sink->store->runs.push_back(run);
  }
  return run;
}

}  // namespace autograd
}  // namespace espalier
