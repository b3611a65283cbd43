#ifndef ESPALIER_IO_DATA_PREFETCHER_H_
#define ESPALIER_IO_DATA_PREFETCHER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/data_stream.h"
#include "espalier/io/json.h"
#include "espalier/runtime/background_worker.h"
#include "espalier/runtime/mutex.h"

namespace espalier {

// A stream that a thread of its own keeps a few packs ahead, so that reading
// and tokenising do not hold up a training step. What comes out, the cursor and
// the report are those of the stream read directly. Driven by one thread.
class DataPrefetcher {
 public:
  // depth >= 1 packs ahead. Where the stream was positioned with Seek, it goes
  // on there.
  DataPrefetcher(std::unique_ptr<DataStream> stream, int64_t depth);
  ~DataPrefetcher();

  // As DataStream::Next. A failure comes in its place in the sequence and
  // stays.
  absl::StatusOr<bool> Next(Pack* pack);
  // Waits for what Next will give, and says whether that is a failure.
  absl::Status Peek();
  // Of the position behind the last pack that Next gave; what was prepared
  // beyond it does not show.
  JsonValue Cursor() const { return ToJson(position_); }
  const DataReport& report() const { return position_.report; }

  // How often Next had to wait for the thread.
  int64_t num_waits() const { return num_waits_; }

 private:
  struct Item {
    absl::StatusOr<bool> more = false;
    Pack pack;
    DataPosition position;
  };

  void Prepare();

  // Only the worker uses the stream once it runs.
  std::unique_ptr<DataStream> stream_;
  DataPosition position_;
  int64_t num_waits_ = 0;
  std::optional<absl::StatusOr<bool>> ended_;

  Mutex mutex_;
  CondVar ready_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<BackgroundWorker> worker_;  // last: ends first
};

}  // namespace espalier

#endif  // ESPALIER_IO_DATA_PREFETCHER_H_
