#include "espalier/runtime/internal/sim_engine.h"

#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/guard.h"

namespace espalier::internal {

class SimEngine::SimStream final : public Stream {
 public:
  SimStream(SimEngine& engine, int index, absl::string_view name)
      : engine_(engine), index_(index), name_(name) {}
  absl::string_view name() const override { return name_; }
  void Enqueue(absl::string_view op, absl::Span<const Access> accesses,
               std::function<void()> work) override {
    engine_.Enqueue(index_, op, accesses, std::move(work));
  }
  Event Record() override { return engine_.Record(index_); }
  void Wait(const Event& event) override { engine_.Wait(index_, event); }
  bool Passed(const Event& event) const override {
    return engine_.Passed(event);
  }
  void Synchronize() override { engine_.Synchronize(index_); }

 private:
  SimEngine& engine_;
  const int index_;
  const std::string name_;
};

SimEngine::SimEngine(std::vector<std::string> stream_names, uint64_t seed)
    : order_(stream_names), queues_(stream_names.size()) {
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].stream = std::make_unique<SimStream>(*this, static_cast<int>(i),
                                                    stream_names[i]);
  }
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].worker = std::thread(
        [this, i, seed] { Run(static_cast<int>(i), seed * 7919 + i); });
  }
}

SimEngine::~SimEngine() { Finish(); }

Stream& SimEngine::stream(int index) {
  return *queues_[static_cast<size_t>(index)].stream;
}

void SimEngine::Finish() {
  {
    MutexLock lock(mutex_);
    finishing_ = true;
    changed_.NotifyAll();
  }
  for (Queue& queue : queues_) {
    if (queue.worker.joinable()) queue.worker.join();
  }
}

int SimEngine::IndexOf(const Stream* stream) const {
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].stream.get() == stream) return static_cast<int>(i);
  }
  CheckFailed(__FILE__, __LINE__, "IndexOf", "a stream of another device");
}

void SimEngine::CheckAlive() {
  if (!failure_.ok()) Fail(failure_);
}

void SimEngine::Push(int index, Item item) {
  Queue& queue = queues_[static_cast<size_t>(index)];
  ++queue.queued;
  queue.items.push_back(std::move(item));
  changed_.NotifyAll();
}

void SimEngine::Enqueue(int index, absl::string_view op,
                        absl::Span<const Access> accesses,
                        std::function<void()> work) {
  MutexLock lock(mutex_);
  CheckAlive();
  failure_ = order_.AddWork(index, op, accesses);
  CheckAlive();
  Push(index, {std::string(op), std::move(work)});
}

void SimEngine::Fill(Stream& stream, void* data, int64_t bytes, int value) {
  const int index = IndexOf(&stream);
  MutexLock lock(mutex_);
  order_.AddItem(index);
  Push(index,
       {"fill", [=] { std::memset(data, value, static_cast<size_t>(bytes)); }});
}

Event SimEngine::Record(int index) {
  MutexLock lock(mutex_);
  return {queues_[static_cast<size_t>(index)].stream.get(),
          order_.Record(index)};
}

void SimEngine::Wait(int index, const Event& event) {
  const int source = IndexOf(event.stream);
  MutexLock lock(mutex_);
  CheckAlive();
  ESPALIER_CHECK(event.position <= queues_[static_cast<size_t>(source)].queued,
                 "wait for position ", event.position,
                 ", which nobody recorded");
  if (source == index) return;  // a stream is in order with itself
  order_.AddWait(index, source, event.position);
  Push(index, {"wait", nullptr, source, event.position});
}

bool SimEngine::Passed(const Event& event) {
  const auto source = static_cast<size_t>(IndexOf(event.stream));
  MutexLock lock(mutex_);
  return queues_[source].done >= event.position;
}

void SimEngine::Synchronize(int index) {
  MutexLock lock(mutex_);
  const Queue& queue = queues_[static_cast<size_t>(index)];
  const uint64_t position = order_.Record(index);
  while (queue.done < position) changed_.Wait(mutex_);
  CheckAlive();
  order_.HostWaited(index, position);
}

void SimEngine::AddBlock(const void* data, int64_t bytes, Stream& owner) {
  const int index = IndexOf(&owner);
  MutexLock lock(mutex_);
  order_.AddBlock(data, bytes, index);
}

void SimEngine::AddUser(const void* data, Stream& user) {
  const int index = IndexOf(&user);
  MutexLock lock(mutex_);
  order_.AddUser(data, index);
}

bool SimEngine::RemoveBlock(const void* data) {
  MutexLock lock(mutex_);
  int worker = -1;  // when it is one of ours that frees
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].worker_id == std::this_thread::get_id()) {
      worker = static_cast<int>(i);
    }
  }
  // The item it is at, whose work is over, is not counted as done yet.
  const uint64_t position =
      worker < 0 ? 0 : queues_[static_cast<size_t>(worker)].done + 1;
  absl::Status status = order_.RemoveBlock(data, worker, position);
  if (status.ok()) return true;
  if (failure_.ok()) failure_ = std::move(status);
  return false;
}

void SimEngine::Run(int index, uint64_t seed) {
  std::mt19937_64 random(seed);
  // Each stream has a pace of its own: from none to about a kernel's time.
  const int64_t longest_us =
      std::array<int64_t, 4>{0, 20, 100, 400}[random() % 4];
  const auto delay = [&] {
    if (longest_us == 0 || random() % 4 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(
        random() % static_cast<uint64_t>(longest_us)));
  };
  Queue& queue = queues_[static_cast<size_t>(index)];
  mutex_.Lock();
  queue.worker_id = std::this_thread::get_id();
  for (;;) {
    while (queue.items.empty() && !finishing_) changed_.Wait(mutex_);
    if (queue.items.empty()) break;
    Item item = std::move(queue.items.front());
    queue.items.pop_front();
    if (item.source >= 0) {
      const Queue& source = queues_[static_cast<size_t>(item.source)];
      while (source.done < item.position) changed_.Wait(mutex_);
    }
    const bool alive = failure_.ok();
    mutex_.Unlock();
    delay();
    absl::Status status;
    if (alive && item.work) status = Guard(item.work);
    item.work = nullptr;  // what it holds may free blocks
    mutex_.Lock();
    if (!status.ok() && failure_.ok()) {
      failure_ =
          absl::Status(status.code(), absl::StrCat("sim: '", item.op, "' on ",
                                                   queue.stream->name(), ": ",
                                                   status.message()));
    }
    ++queue.done;
    changed_.NotifyAll();
  }
  mutex_.Unlock();
}

}  // namespace espalier::internal
