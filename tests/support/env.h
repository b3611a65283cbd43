#ifndef ESPALIER_TESTS_SUPPORT_ENV_H_
#define ESPALIER_TESTS_SUPPORT_ENV_H_

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/dtype.h"

namespace espalier::test {

// Contexts of the test process, made once per (isa, threads) and kept. Fresh
// and freed memory reads NaN: an element that a kernel leaves out is seen.
Context& ContextFor(Isa isa, int num_threads);

// Counts the parallel regions of several chunks; runs their tasks one after
// another on the calling thread, the last first.
class CountingExecutor final : public Executor {
 public:
  int num_threads() const override { return 7; }
  void Run(int num_tasks, absl::FunctionRef<void(int)> task) override {
    ++num_regions_;
    for (int i = num_tasks - 1; i >= 0; --i) task(i);
  }
  int64_t num_regions() const { return num_regions_; }

 private:
  int64_t num_regions_ = 0;
};

// As ContextFor, on a CountingExecutor. A test that compares thread counts asks
// here whether there was anything for a second thread to do.
struct CountedContext {
  CountingExecutor executor;
  std::unique_ptr<Context> context;
};
CountedContext& CountedContextFor(Isa isa);
// The regions that fn opens.
int64_t CountRegions(Isa isa, absl::FunctionRef<void(Device&)> fn);

// The widest instruction set, 2 threads.
Device& Cpu();

// Every instruction set of this build that this machine runs.
std::vector<Isa> RunnableIsas();

// Where and in what dtype an op is tested, and how far from the f64 reference
// it may be: |got - want| <= tolerance * (1 + |want|).
struct Target {
  std::string name;  // "cpu_avx512_bf16"
  Isa isa;
  DType dtype;
  double tolerance;
};

// f32 and bf16 on every runnable instruction set.
std::vector<Target> Targets(double f32_tolerance = 1e-5,
                            double bf16_tolerance = 2e-2);
std::string ToString(const Target& target);
inline std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << target.name;
}

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_SUPPORT_ENV_H_
