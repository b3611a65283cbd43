#include "espalier/io/data_prefetcher.h"

#include <utility>

#include "espalier/runtime/check.h"
#include "espalier/runtime/guard.h"

namespace espalier {

DataPrefetcher::DataPrefetcher(std::unique_ptr<DataStream> stream,
                               int64_t depth)
    : stream_(std::move(stream)),
      position_(stream_->Position()),
      worker_(std::make_unique<BackgroundWorker>()) {
  ESPALIER_CHECK(depth >= 1, "depth is ", depth);
  for (int64_t i = 0; i < depth; ++i) worker_->Post([this] { Prepare(); });
}

DataPrefetcher::~DataPrefetcher() = default;

void DataPrefetcher::Prepare() {
  {
    const MutexLock lock(mutex_);
    if (finished_) return;
  }
  Item item;
  const absl::Status guarded =
      internal::Guard([&] { item.more = stream_->Next(&item.pack); });
  item.position = stream_->Position();
  if (!guarded.ok()) item.more = guarded;
  {
    const MutexLock lock(mutex_);
    finished_ = !item.more.ok() || !*item.more;
    items_.push_back(std::move(item));
  }
  ready_.NotifyOne();
}

absl::Status DataPrefetcher::Peek() {
  if (ended_) return ended_->status();
  const MutexLock lock(mutex_);
  while (items_.empty()) ready_.Wait(mutex_);
  return items_.front().more.status();
}

absl::StatusOr<bool> DataPrefetcher::Next(Pack* pack) {
  if (ended_) return *ended_;
  Item item;
  {
    const MutexLock lock(mutex_);
    if (items_.empty()) ++num_waits_;
    while (items_.empty()) ready_.Wait(mutex_);
    item = std::move(items_.front());
    items_.pop_front();
  }
  position_ = std::move(item.position);
  if (!item.more.ok() || !*item.more) {
    ended_ = item.more;
    return item.more;
  }
  worker_->Post([this] { Prepare(); });
  *pack = std::move(item.pack);
  return true;
}

}  // namespace espalier
