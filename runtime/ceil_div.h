#ifndef ESPALIER_RUNTIME_CEIL_DIV_H_
#define ESPALIER_RUNTIME_CEIL_DIV_H_

#include <cstdint>

namespace espalier {

// How many parts of b cover a: a / b rounded up, for any a >= 0 and b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// The least multiple of b that is not below a: any a >= 0 and b > 0 for which
// there is one.
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_CEIL_DIV_H_
