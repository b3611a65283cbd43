// How an op's _cpu.cc uses Highway: one source, compiled for the instruction
// sets below, and chosen by exec.isa (never by cpuid).
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "espalier/ops/<op>/<op>_cpu.cc"
//   #include "espalier/ops/highway.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace espalier::<op> { namespace HWY_NAMESPACE {
//   void Forward(const ForwardArgs& args, const Exec& exec) {...}
//   }}  HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE
//   namespace espalier::<op> {
//   void ForwardCpu(const ForwardArgs& args, const Exec& exec) {
//     ESPALIER_HWY_CALL(exec.isa, Forward)(args, exec);
//   }}
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

// clang-format off: the first include sets up the second
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "espalier/ops/highway-inl.h"
// clang-format on

#undef ESPALIER_HWY_CALL
#if defined(ESPALIER_ARM64)
#define ESPALIER_HWY_CALL(isa, function) N_NEON::function
#elif defined(ESPALIER_AVX512)
#define ESPALIER_HWY_CALL(isa, function)        \
  ((isa) >= ::espalier::Isa::kAvx512 ? N_AVX3::function : N_AVX2::function)
#else
#define ESPALIER_HWY_CALL(isa, function) N_AVX2::function
#endif
