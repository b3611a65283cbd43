#include <cstring>
#include <utility>

#include "espalier/runtime/caching_allocator.h"
#include "espalier/runtime/internal/devices.h"

namespace espalier::internal {

namespace {

// Queueing runs the work at once, so every event has passed.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(absl::string_view name) : name_(name) {}
  absl::string_view name() const override { return name_; }
  void Enqueue(absl::string_view, absl::Span<const Access>,
               std::function<void()> work) override {
    work();
  }
  Event Record() override { return {this, 0}; }
  void Wait(const Event&) override {}
  bool Passed(const Event&) const override { return true; }
  void Synchronize() override {}

 private:
  const absl::string_view name_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(Context& context, std::optional<int64_t> budget_bytes, bool poison)
      : Device(context),
        allocator_(MakeCachingAllocator(MakeHostMemory(),
                                        {.device = "cpu",
                                         .budget_bytes = budget_bytes,
                                         .poison = poison,
                                         .host_memory = true})) {}
  DeviceType type() const override { return kCpu; }
  DeviceType kernel_type() const override { return kCpu; }
  bool host_addressable() const override { return true; }
  Allocator& allocator() override { return *allocator_; }
  Stream& compute_stream() override { return compute_stream_; }
  Stream& comm_stream() override { return comm_stream_; }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  void CopyFromHost(void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
  }

 private:
  std::unique_ptr<Allocator> allocator_;
  CpuStream compute_stream_{"cpu.compute"};
  CpuStream comm_stream_{"cpu.comm"};
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(Context& context,
                                      std::optional<int64_t> budget_bytes,
                                      bool poison) {
  return std::make_unique<CpuDevice>(context, budget_bytes, poison);
}

}  // namespace espalier::internal
