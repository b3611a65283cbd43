#include "espalier/runtime/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace espalier {

namespace {

// A small file of the kernel's, or "".
std::string ReadSmallFile(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return "";
  char buffer[4096];
  const size_t size = std::fread(buffer, 1, sizeof(buffer), file);
  std::fclose(file);
  return std::string(buffer, size);
}

// The process's group in the unified hierarchy: the line "0::/a/b".
std::string OwnGroup() {
  const std::string groups = ReadSmallFile("/proc/self/cgroup");
  for (absl::string_view line : absl::StrSplit(groups, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) return std::string(line);
  }
  return "/";
}

int AffinityCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  // More CPUs than the fixed mask holds.
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

namespace internal {

std::optional<double> ParseCpuMax(absl::string_view text) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripAsciiWhitespace(text), ' ');
  double quota = 0, period = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) ||
      !absl::SimpleAtod(words[1], &period) || !(quota > 0) || !(period > 0)) {
    return std::nullopt;
  }
  return quota / period;
}

std::optional<double> CgroupCpus(const std::string& root, std::string group) {
  std::optional<double> lowest;
  for (;;) {
    const std::optional<double> cpus =
        ParseCpuMax(ReadSmallFile(absl::StrCat(root, group, "/cpu.max")));
    if (cpus && (!lowest || *cpus < *lowest)) lowest = cpus;
    if (group.empty() || group == "/") return lowest;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace internal

int UsableCpus() {
  const int affinity = std::max(1, AffinityCpus());
  const std::optional<double> quota =
      internal::CgroupCpus("/sys/fs/cgroup", OwnGroup());
  if (!quota || *quota >= affinity) return affinity;
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

}  // namespace espalier
