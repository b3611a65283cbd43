#include "espalier/train/schedule.h"

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(ScheduleTest, WarmsUpLinearlyAndReachesTheFloorAtTheLastStep) {
  Schedule schedule;
  schedule.peak = 1;
  schedule.floor = 0.1;
  schedule.warmup_steps = 10;
  schedule.total_steps = 100;
  for (const ScheduleKind kind :
       {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    schedule.kind = kind;
    EXPECT_DOUBLE_EQ(schedule.At(1), 0.1);
    EXPECT_DOUBLE_EQ(schedule.At(10), 1);
    EXPECT_DOUBLE_EQ(schedule.At(55), 0.55);
    EXPECT_DOUBLE_EQ(schedule.At(100), 0.1);
    for (int64_t step = 11; step <= 100; ++step) {
      EXPECT_LT(schedule.At(step), schedule.At(step - 1));
    }
  }
  schedule.kind = ScheduleKind::kConstant;
  EXPECT_DOUBLE_EQ(schedule.At(100), 1);
}

}  // namespace
}  // namespace espalier
