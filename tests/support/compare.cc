#include "espalier/tests/support/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace espalier::test {

double RelativeError(const Tensor& got, const Tensor& want) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.shape() != want.shape()) return kInfinity;
  const std::vector<double> g = ToDoubles(got);
  const std::vector<double> w = ToDoubles(want);
  double error = 0;
  double scale = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    if (!std::isfinite(g[i]) || !std::isfinite(w[i])) return kInfinity;
    error = std::max(error, std::abs(g[i] - w[i]));
    scale = std::max(scale, std::abs(w[i]));
  }
  return error == 0 ? 0 : error / scale;
}

::testing::AssertionResult SameBits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure()
           << ToString(a) << " against " << ToString(b);
  }
  const Tensor x = a.ToHost();
  const Tensor y = b.ToHost();
  const auto* p = static_cast<const char*>(x.view().pointer);
  const auto* q = static_cast<const char*>(y.view().pointer);
  for (int64_t i = 0; i < x.num_bytes(); ++i) {
    if (p[i] != q[i]) {
      return ::testing::AssertionFailure()
             << "differs from element " << i / SizeOf(a.dtype()) << " on";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace espalier::test
