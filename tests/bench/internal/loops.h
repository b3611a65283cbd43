#ifndef ESPALIER_TESTS_BENCH_INTERNAL_LOOPS_H_
#define ESPALIER_TESTS_BENCH_INTERNAL_LOOPS_H_

#include <cstdint>

// The loops behind the ceilings, one set per instruction set. FLOP loops do
// `rounds` rounds of kChains independent instructions, enough to hide their
// latency, and return a value that depends on all of them. Memory loops handle
// a multiple of 256 bytes at 64-byte aligned addresses.
namespace espalier::bench {

inline constexpr int kChains = 12;

float FmaAvx2(int64_t rounds);        // 8 lanes
float FmaNeon(int64_t rounds);        // 4 lanes
float FmaAvx512(int64_t rounds);      // 16 lanes
float DotBf16Avx512(int64_t rounds);  // 16 lanes of pairs
float DotBf16Arm(int64_t rounds);     // 4 lanes of pairs

int64_t ReadAvx2(const void* from, int64_t bytes);
void CopyAvx2(void* to, const void* from, int64_t bytes);
void StreamAvx2(void* to, const void* from, int64_t bytes);  // non-temporal
int64_t ReadNeon(const void* from, int64_t bytes);
void CopyNeon(void* to, const void* from, int64_t bytes);

}  // namespace espalier::bench

#endif  // ESPALIER_TESTS_BENCH_INTERNAL_LOOPS_H_
