#include "espalier/runtime/internal/sim_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

namespace {

void Merge(std::vector<uint64_t>& clock, const std::vector<uint64_t>& other) {
  for (size_t i = 0; i < clock.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

}  // namespace

SimOrder::SimOrder(std::vector<std::string> stream_names)
    : names_(std::move(stream_names)),
      clocks_(names_.size(), Clock(names_.size())),
      host_(names_.size()),
      recorded_(names_.size()) {}

void SimOrder::AddBlock(const void* data, int64_t bytes, int owner) {
  const char* const begin = static_cast<const char*>(data);
  Block block{next_number_++, bytes, owner, {}, {}};
  block.touches.push_back({begin, begin + bytes, owner,
                           clocks_[Index(owner)][Index(owner)], true,
                           "allocation"});
  blocks_.insert_or_assign(begin, std::move(block));
}

void SimOrder::AddUser(const void* data, int stream) {
  const auto block = blocks_.find(static_cast<const char*>(data));
  if (block != blocks_.end()) block->second.users.push_back(stream);
}

absl::Status SimOrder::RemoveBlock(const void* data, int done_stream,
                                   uint64_t done_position) {
  const auto found = blocks_.find(static_cast<const char*>(data));
  if (found == blocks_.end()) return absl::OkStatus();
  const Block& block = found->second;
  Clock over = clocks_[Index(block.owner)];
  Merge(over, host_);
  if (done_stream >= 0) {
    uint64_t& known = over[Index(done_stream)];
    known = std::max(known, done_position);
  }
  for (const Touch& touch : block.touches) {
    if (touch.stream == block.owner ||
        touch.position <= over[Index(touch.stream)] ||
        std::find(block.users.begin(), block.users.end(), touch.stream) !=
            block.users.end()) {
      continue;
    }
    return absl::InternalError(absl::StrCat(
        "sim: block ", block.number, " (", block.bytes, " bytes) of ",
        Name(block.owner), " is freed while '", touch.op, "' on ",
        Name(touch.stream), " may still use it; missing: RecordUse(block, ",
        Name(touch.stream), ") or a wait of ", Name(block.owner), " for '",
        touch.op, "' before Free"));
  }
  blocks_.erase(found);
  return absl::OkStatus();
}

absl::Status SimOrder::AddWork(int stream, absl::string_view op,
                               absl::Span<const Access> accesses) {
  Clock& clock = clocks_[Index(stream)];
  Merge(clock, host_);
  for (const Access& access : accesses) {
    if (access.bytes <= 0) continue;
    absl::Status status = Check(stream, op, clock, access);
    if (!status.ok()) return status;
  }
  const uint64_t position = AddItem(stream);
  for (const Access& access : accesses) {
    if (access.bytes <= 0) continue;
    const char* const begin = static_cast<const char*>(access.data);
    Add(Find(begin)->second, {begin, begin + access.bytes, stream, position,
                              access.write, std::string(op)});
  }
  return absl::OkStatus();
}

uint64_t SimOrder::Record(int stream) {
  const Clock& clock = clocks_[Index(stream)];
  const uint64_t position = clock[Index(stream)];
  recorded_[Index(stream)].insert_or_assign(position, clock);
  return position;
}

void SimOrder::AddWait(int stream, int source, uint64_t position) {
  // An event that is gone from the list lies before what the host knows.
  const auto& recorded = recorded_[Index(source)];
  const auto event = recorded.find(position);
  Merge(clocks_[Index(stream)],
        event == recorded.end() ? host_ : event->second);
  AddItem(stream);
}

void SimOrder::HostWaited(int stream, uint64_t position) {
  const auto& recorded = recorded_[Index(stream)];
  const auto event = recorded.find(position);
  if (event != recorded.end()) Merge(host_, event->second);
  for (size_t i = 0; i < recorded_.size(); ++i) {
    recorded_[i].erase(recorded_[i].begin(),
                       recorded_[i].upper_bound(host_[i]));
  }
}

SimOrder::Blocks::iterator SimOrder::Find(const void* data) {
  const char* const address = static_cast<const char*>(data);
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return blocks_.end();
  const auto block = std::prev(next);
  return address < block->first + block->second.bytes ? block : blocks_.end();
}

absl::Status SimOrder::Check(int stream, absl::string_view op,
                             const Clock& clock, const Access& access) {
  const char* const begin = static_cast<const char*>(access.data);
  const char* const end = begin + access.bytes;
  const char* const verb = access.write ? "writes" : "reads";
  const auto found = Find(begin);
  if (found == blocks_.end()) {
    return absl::InternalError(absl::StrCat(
        "sim: '", op, "' on ", Name(stream), " ", verb, " ", access.bytes,
        " bytes that are in no live block: freed, or not of this device"));
  }
  const Block& block = found->second;
  const auto describe = [&] {
    return absl::StrCat("sim: '", op, "' on ", Name(stream), " ", verb,
                        " bytes [", begin - found->first, ", ",
                        end - found->first, ") of block ", block.number, " (",
                        block.bytes, " bytes)");
  };
  if (end > found->first + block.bytes) {
    return absl::InternalError(absl::StrCat(describe(), ", past its end"));
  }
  for (const Touch& touch : block.touches) {
    if (touch.stream == stream || !(touch.write || access.write) ||
        touch.end <= begin || touch.begin >= end ||
        touch.position <= clock[Index(touch.stream)]) {
      continue;
    }
    return absl::InternalError(absl::StrCat(
        describe(), ", which '", touch.op, "' on ", Name(touch.stream), " ",
        touch.write ? "wrote" : "read", "; missing: a wait of ", Name(stream),
        " for an event recorded on ", Name(touch.stream), " after '", touch.op,
        "'"));
  }
  return absl::OkStatus();
}

void SimOrder::Add(Block& block, Touch touch) {
  auto& touches = block.touches;
  touches.erase(std::remove_if(touches.begin(), touches.end(),
                               [&](const Touch& old) {
                                 if (old.position <= host_[Index(old.stream)])
                                   return true;
                                 const bool covered =
                                     old.begin >= touch.begin &&
                                     old.end <= touch.end;
                                 const bool repeats =
                                     old.stream == touch.stream && !old.write;
                                 return covered && (touch.write || repeats);
                               }),
                touches.end());
  touches.push_back(std::move(touch));
}

}  // namespace espalier::internal
