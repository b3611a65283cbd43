#include "espalier/runtime/background_worker.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(BackgroundWorkerTest, TasksRunInOrderOnAnotherThread) {
  std::vector<int> order;
  std::thread::id id;
  std::promise<void> done;
  BackgroundWorker worker;
  for (int i = 0; i < 100; ++i) {
    worker.Post([&order, i] { order.push_back(i); });
  }
  worker.Post([&] {
    id = std::this_thread::get_id();
    done.set_value();
  });
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_NE(id, std::this_thread::get_id());
}

// The end of the worker comes while its first task runs: that one finishes, the
// one behind it does not begin.
TEST(BackgroundWorkerTest, EndFinishesWhatRunsAndDropsWhatWaits) {
  std::promise<void> started;
  std::atomic<bool> ending = false, finished = false, dropped = true;
  auto worker = std::make_unique<BackgroundWorker>();
  worker->Post([&] {
    started.set_value();
    while (!ending) std::this_thread::yield();
    // The destructor sets its mark before it waits for this task.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    finished = true;
  });
  worker->Post([&] { dropped = false; });
  started.get_future().wait();
  ending = true;
  worker.reset();
  EXPECT_TRUE(finished);
  EXPECT_TRUE(dropped);
}

}  // namespace
}  // namespace espalier
