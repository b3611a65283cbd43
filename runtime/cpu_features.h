#ifndef ESPALIER_RUNTIME_CPU_FEATURES_H_
#define ESPALIER_RUNTIME_CPU_FEATURES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace espalier {

// Instruction sets that kernels are written for, each containing the ones
// before it within its architecture. x86 starts at AVX2 (x86-64-v3), Arm at
// NEON.
enum class Isa : uint8_t {
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // F, BW, VL, DQ, CD, VBMI
  kAvx512Bf16,  // and AVX512_BF16 (vdpbf16ps)
  kNeon,        // Armv8-A
  kArmBf16,     // Armv8.2-A with BF16 and DotProd
};

absl::string_view ToString(Isa isa);

// The widest set that this build holds kernels for and this CPU runs.
Isa DetectIsa();

// The lowest set of this architecture.
Isa BaselineIsa();

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_CPU_FEATURES_H_
