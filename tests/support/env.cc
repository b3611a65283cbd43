#include "espalier/tests/support/env.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace espalier::test {

namespace {

ContextOptions OptionsFor(Isa isa) {
  ContextOptions options;
  options.max_isa = isa;
  options.poison_memory = true;
  return options;
}

}  // namespace

Context& ContextFor(Isa isa, int num_threads) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): kept
  static auto* contexts =
      new std::map<std::pair<Isa, int>, std::unique_ptr<Context>>();
  std::unique_ptr<Context>& context = (*contexts)[{isa, num_threads}];
  if (context == nullptr) {
    ContextOptions options = OptionsFor(isa);
    options.num_threads = num_threads;
    context = std::move(Context::Create(options)).value();
  }
  return *context;
}

CountedContext& CountedContextFor(Isa isa) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): kept
  static auto* contexts = new std::map<Isa, CountedContext>();
  CountedContext& counted = (*contexts)[isa];
  if (counted.context == nullptr) {
    ContextOptions options = OptionsFor(isa);
    options.executor = &counted.executor;
    counted.context = std::move(Context::Create(options)).value();
  }
  return counted;
}

int64_t CountRegions(Isa isa, absl::FunctionRef<void(Device&)> fn) {
  CountedContext& counted = CountedContextFor(isa);
  const int64_t before = counted.executor.num_regions();
  fn(counted.context->cpu());
  return counted.executor.num_regions() - before;
}

Device& Cpu() { return ContextFor(DetectIsa(), 2).cpu(); }

std::vector<Isa> RunnableIsas() {
  std::vector<Isa> isas;
  for (int isa = static_cast<int>(BaselineIsa());
       isa <= static_cast<int>(DetectIsa()); ++isa) {
    isas.push_back(static_cast<Isa>(isa));
  }
  return isas;
}

std::vector<Target> Targets(double f32_tolerance, double bf16_tolerance) {
  std::vector<Target> targets;
  for (const Isa isa : RunnableIsas()) {
    targets.push_back({absl::StrCat("cpu_", ToString(isa), "_f32"), isa, kF32,
                       f32_tolerance});
    targets.push_back({absl::StrCat("cpu_", ToString(isa), "_bf16"), isa, kBF16,
                       bf16_tolerance});
  }
  return targets;
}

std::string ToString(const Target& target) { return target.name; }

}  // namespace espalier::test
