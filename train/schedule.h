#ifndef ESPALIER_TRAIN_SCHEDULE_H_
#define ESPALIER_TRAIN_SCHEDULE_H_

#include <cstdint>

namespace espalier {

enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine };

// Learning rate as a pure function of the optimizer step.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 2e-4;
  double floor = 0;          // reached at the last step
  int64_t warmup_steps = 0;  // linear from peak / warmup_steps
  int64_t total_steps = 1;

  // `step` counts from 1 to total_steps.
  double At(int64_t step) const;
};

}  // namespace espalier

#endif  // ESPALIER_TRAIN_SCHEDULE_H_
