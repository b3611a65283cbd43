#ifndef ESPALIER_RUNTIME_INTERNAL_SIM_ORDER_H_
#define ESPALIER_RUNTIME_INTERNAL_SIM_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/runtime/stream.h"

namespace espalier::internal {

// Whether work on several streams is ordered by more than luck: vector clocks
// over streams and host, and for each block who touched which bytes last.
// Judges the program as it is queued, so a missing wait is found on every run,
// however the streams happen to be timed.
//
// A position counts the items queued on a stream: work and waits. Accesses of
// one op are one range each; strided views count with all they span.
// Not thread-safe.
class SimOrder {
 public:
  explicit SimOrder(std::vector<std::string> stream_names);

  // A block for `owner`, ordered after what is queued there; then other
  // streams that use it with the allocator's knowledge.
  void AddBlock(const void* data, int64_t bytes, int owner);
  void AddUser(const void* data, int stream);

  // Fails, and keeps the block, when a stream that is not a named user may
  // still touch it once the owner's next work runs. Where the caller is the
  // worker of `done_stream` (else -1), what is queued there up to
  // `done_position` is over.
  absl::Status RemoveBlock(const void* data, int done_stream,
                           uint64_t done_position);

  // Counts work on a stream. Fails, naming op, stream, block and the missing
  // wait, when it is not ordered with what others did to the same bytes, and
  // when it touches memory that is no live block.
  absl::Status AddWork(int stream, absl::string_view op,
                       absl::Span<const Access> accesses);

  // Counts an item without accesses; returns its position.
  uint64_t AddItem(int stream) {
    return ++clocks_[Index(stream)][Index(stream)];
  }

  uint64_t Record(int stream);
  // Counts a wait on `stream` for an event of `source`.
  void AddWait(int stream, int source, uint64_t position);
  // The host has waited for a recorded position.
  void HostWaited(int stream, uint64_t position);

 private:
  using Clock = std::vector<uint64_t>;  // by stream: position known to be over

  struct Touch {
    const char* begin;
    const char* end;
    int stream;
    uint64_t position;
    bool write;
    std::string op;
  };
  struct Block {
    int64_t number;
    int64_t bytes;
    int owner;
    std::vector<int> users;
    std::vector<Touch> touches;
  };
  using Blocks = std::map<const char*, Block>;

  static size_t Index(int stream) { return static_cast<size_t>(stream); }
  absl::string_view Name(int stream) const { return names_[Index(stream)]; }
  Blocks::iterator Find(const void* data);
  absl::Status Check(int stream, absl::string_view op, const Clock& clock,
                     const Access& access);
  void Add(Block& block, Touch touch);

  const std::vector<std::string> names_;
  std::vector<Clock> clocks_;  // by stream
  Clock host_;
  std::vector<std::map<uint64_t, Clock>> recorded_;  // by stream and position
  Blocks blocks_;
  int64_t next_number_ = 1;
};

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_SIM_ORDER_H_
