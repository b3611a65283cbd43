#include "espalier/runtime/context.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/cpu_count.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/internal/devices.h"
#include "espalier/runtime/mutex.h"

namespace espalier {

namespace {

int NumThreads(const ContextOptions& options) {
  if (options.num_threads > 0) return options.num_threads;
  if (options.executor != nullptr) return options.executor->num_threads();
  return std::min(UsableCpus(), ThreadPool::kMaxThreads);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Context>> Context::Create(
    const ContextOptions& options) {
  if (options.num_threads < 0 ||
      options.num_threads > ThreadPool::kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_threads is ", options.num_threads, ", expected 0 to ",
                     ThreadPool::kMaxThreads));
  }
  if (NumThreads(options) < 1 ||
      NumThreads(options) > ThreadPool::kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("executor has ", NumThreads(options),
                     " threads, expected 1 to ", ThreadPool::kMaxThreads));
  }
  if (options.memory_budget_bytes && *options.memory_budget_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("memory_budget_bytes is ",
                                                   *options.memory_budget_bytes,
                                                   ", expected more than 0"));
  }
  const Isa detected = DetectIsa();
  if (options.max_isa &&
      (*options.max_isa < BaselineIsa() ||
       (BaselineIsa() == Isa::kAvx2 && *options.max_isa > Isa::kAvx512Bf16))) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_isa is ", ToString(*options.max_isa),
                     ", which this architecture does not have; detected ",
                     ToString(detected)));
  }
  return internal::GuardValue<std::unique_ptr<Context>>(
      [&] { return std::unique_ptr<Context>(new Context(options)); });
}

Context::Context(const ContextOptions& options)
    : options_(options),
      isa_(std::min(DetectIsa(), options.max_isa.value_or(DetectIsa()))),
      log_mutex_(std::make_unique<Mutex>()),
      pool_(
          std::make_unique<ThreadPool>(NumThreads(options), options.executor)),
      cpu_(internal::MakeCpuDevice(*this, options.memory_budget_bytes,
                                   options.poison_memory)),
      meta_(internal::MakeMetaDevice(*this)) {}

Context::~Context() = default;

void Context::Log(Severity severity, absl::string_view message) {
  if (!logs(severity)) return;
  MutexLock lock(*log_mutex_);
  options_.log_sink->Write(severity, message);
}

Device& Context::sim() {
  if (sim_ == nullptr) {
    sim_ = internal::MakeSimDevice(*this, options_.sim_seed);
  }
  return *sim_;
}

}  // namespace espalier
