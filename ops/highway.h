// How an op's _cpu.cc uses Highway: one source, compiled for the instruction
// sets below, and chosen by exec.isa (never by cpuid).
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "espalier/ops/<op>/<op>_cpu.cc"
//   #include "espalier/ops/highway.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace espalier::<op> { namespace HWY_NAMESPACE {
//   template <typename T>
//   void Forward(const ForwardArgs& args, const Exec& exec) {...}
//   }}  HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE
//   namespace espalier::<op> {
//   ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
//   }
//   #endif
//
// No include guard: foreach_target.h includes the op's file once per set.

#ifndef HWY_DISABLED_TARGETS
#if defined(ESPALIER_ARM64)
#define HWY_DISABLED_TARGETS HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128
#elif defined(ESPALIER_AVX512)
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
#else
#define HWY_DISABLED_TARGETS HWY_AVX3 | HWY_AVX3_DL
#endif
#endif

// The first include sets up the others.
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "espalier/ops/highway-inl.h"
// clang-format on

#undef ESPALIER_HWY_CALL
#if defined(ESPALIER_ARM64)
#define ESPALIER_HWY_CALL(isa, function) N_NEON::function
#elif defined(ESPALIER_AVX512)
#define ESPALIER_HWY_CALL(isa, function) \
  ((isa) >= ::espalier::Isa::kAvx512 ? N_AVX3::function : N_AVX2::function)
#else
#define ESPALIER_HWY_CALL(isa, function) N_AVX2::function
#endif

// Defines and instantiates, in the HWY_ONCE part, the kernel rows
//   template <typename T> void Name(const Args& args, const Exec& exec);
// for f32 and bf16 from the function template of the same signature that the
// sets compiled.
#undef ESPALIER_HWY_ROWS
// NOLINTBEGIN(bugprone-macro-parentheses): names stand where a parenthesis
// may not
#define ESPALIER_HWY_ROWS(Name, Args, function)                  \
  template <typename T>                                          \
  void Name(const Args& args, const Exec& exec) {                \
    ESPALIER_HWY_CALL(exec.isa, function<T>)(args, exec);        \
  }                                                              \
  template void Name<float>(const Args& args, const Exec& exec); \
  template void Name<BFloat16>(const Args& args, const Exec& exec)
// NOLINTEND(bugprone-macro-parentheses)
