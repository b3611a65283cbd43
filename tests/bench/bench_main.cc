#include <cstring>

#include "benchmark/benchmark.h"

#include "espalier/tests/bench/ceilings.h"

// Measures the machine's ceilings, then runs the benchmarks of the program.
// The ceilings stand in the context block of every output format.
int main(int argc, char** argv) {
  bool list_only = false;
  for (int i = 1; i < argc; ++i) {
    list_only =
        list_only || std::strncmp(argv[i], "--benchmark_list_tests", 22) == 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (!list_only) {
    for (const auto& [key, value] : espalier::bench::DescribeMachine()) {
      benchmark::AddCustomContext(key, value);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
