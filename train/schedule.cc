#include "espalier/train/schedule.h"

#include <algorithm>
#include <cmath>

namespace espalier {

double Schedule::At(int64_t step) const {
  if (step <= warmup_steps) {
    return peak * static_cast<double>(step) /
           static_cast<double>(std::max<int64_t>(warmup_steps, 1));
  }
  const double span =
      static_cast<double>(std::max<int64_t>(total_steps - warmup_steps, 1));
  const double progress =
      std::clamp(static_cast<double>(step - warmup_steps) / span, 0.0, 1.0);
  switch (kind) {
    case ScheduleKind::kConstant:
      return peak;
    case ScheduleKind::kLinear:
      return peak + (floor - peak) * progress;
    case ScheduleKind::kCosine: {
      constexpr double kPi = 3.14159265358979323846;
      return floor + (peak - floor) * 0.5 * (1 + std::cos(kPi * progress));
    }
  }
  return peak;
}

}  // namespace espalier
