#ifndef ESPALIER_RUNTIME_CPU_COUNT_H_
#define ESPALIER_RUNTIME_CPU_COUNT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier {

// CPUs that the process may use, at least 1: those of its affinity mask, and no
// more than the quotas of its control group and of the groups above allow
// (rounded up). A container with 2 CPUs on a host of 128 has 2.
int UsableCpus();

namespace internal {

// The CPUs of a cgroup v2 "cpu.max", such as "200000 100000"; none for "max".
std::optional<double> ParseCpuMax(absl::string_view text);

// The lowest quota over a control group ("/a/b") and its parents below `root`,
// where the cgroup2 file system is mounted.
std::optional<double> CgroupCpus(const std::string& root, std::string group);

}  // namespace internal

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_CPU_COUNT_H_
