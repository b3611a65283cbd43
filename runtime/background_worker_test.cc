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

// The end of the worker comes long before its last task would.
TEST(BackgroundWorkerTest, EndFinishesWhatRunsAndDropsWhatWaits) {
  constexpr int kTasks = 5000;
  std::promise<void> started;
  std::atomic<int> begun = 0, finished = 0;
  auto worker = std::make_unique<BackgroundWorker>();
  worker->Post([&] { started.set_value(); });
  for (int i = 0; i < kTasks; ++i) {
    worker->Post([&] {
      ++begun;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++finished;
    });
  }
  started.get_future().wait();
  worker.reset();
  EXPECT_EQ(finished, begun);
  EXPECT_LT(begun, kTasks);
}

}  // namespace
}  // namespace espalier
