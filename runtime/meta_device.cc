#include "espalier/runtime/caching_allocator.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/internal/devices.h"

namespace espalier::internal {

namespace {

class MetaStream final : public Stream {
 public:
  explicit MetaStream(absl::string_view name) : name_(name) {}
  absl::string_view name() const override { return name_; }
  void Enqueue(absl::string_view, absl::Span<const Access>,
               std::function<void()>) override {}
  Event Record() override { return {this, 0}; }
  void Wait(const Event&) override {}
  bool Passed(const Event&) const override { return true; }
  void Synchronize() override {}

 private:
  const absl::string_view name_;
};

class MetaDevice final : public Device {
 public:
  explicit MetaDevice(Context& context)
      : Device(context),
        allocator_(MakeCachingAllocator(MakeNoMemory(), {.device = "meta"})) {}
  DeviceType type() const override { return kMeta; }
  DeviceType kernel_type() const override { return kCpu; }
  bool host_addressable() const override { return false; }
  Allocator& allocator() override { return *allocator_; }
  Stream& compute_stream() override { return compute_stream_; }
  Stream& comm_stream() override { return comm_stream_; }
  void CopyToHost(void*, const void*, int64_t) override {
    Fail(absl::InternalError("meta tensors have no data to copy to the host"));
  }
  void CopyFromHost(void*, const void*, int64_t) override {}

 private:
  // Counts what another device would hold; nothing is at its addresses.
  std::unique_ptr<Allocator> allocator_;
  MetaStream compute_stream_{"meta.compute"};
  MetaStream comm_stream_{"meta.comm"};
};

}  // namespace

std::unique_ptr<Device> MakeMetaDevice(Context& context) {
  return std::make_unique<MetaDevice>(context);
}

}  // namespace espalier::internal
