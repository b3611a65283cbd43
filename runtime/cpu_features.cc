#include "espalier/runtime/cpu_features.h"

#if defined(ESPALIER_ARM64)
#include <sys/auxv.h>
#endif

namespace espalier {

absl::string_view ToString(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kNeon:
      return "neon";
    case Isa::kArmBf16:
      return "armbf16";
  }
  return "unknown";
}

#if defined(ESPALIER_ARM64)

Isa BaselineIsa() { return Isa::kNeon; }

Isa DetectIsa() {
  constexpr unsigned long kHwcap2Bf16 = 1UL << 14;
  constexpr unsigned long kHwcapDotProd = 1UL << 20;
  const bool bf16 = (getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0;
  const bool dot_product = (getauxval(AT_HWCAP) & kHwcapDotProd) != 0;
  return bf16 && dot_product ? Isa::kArmBf16 : Isa::kNeon;
}

#else

Isa BaselineIsa() { return Isa::kAvx2; }

Isa DetectIsa() {
#if defined(ESPALIER_AVX512)
  const bool avx512 = __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512vbmi");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return Isa::kAvx512Bf16;
  if (avx512) return Isa::kAvx512;
#endif
  return Isa::kAvx2;
}

#endif

}  // namespace espalier
