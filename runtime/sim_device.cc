#include <cstring>
#include <utility>

#include "espalier/runtime/caching_allocator.h"
#include "espalier/runtime/internal/devices.h"
#include "espalier/runtime/internal/sim_engine.h"

namespace espalier::internal {

namespace {

// The caching allocator, with every block made known to the engine.
class SimAllocator final : public Allocator {
 public:
  explicit SimAllocator(SimEngine& engine)
      : engine_(engine),
        blocks_(MakeCachingAllocator(
            MakeHostMemory(), {.device = "sim",
                               .poison = true,
                               .fill = [&engine](Stream& stream, void* data,
                                                 int64_t bytes, int value) {
                                 engine.Fill(stream, data, bytes, value);
                               }})) {}

  void* Allocate(int64_t bytes, MemoryTag tag, Stream& stream) override {
    void* const data = blocks_->Allocate(bytes, tag, stream);
    engine_.AddBlock(data, bytes, stream);
    return data;
  }
  void Free(void* data) override {
    // What a stream may still touch is never handed out again.
    if (engine_.RemoveBlock(data)) blocks_->Free(data);
  }
  void RecordUse(const void* data, Stream& stream) override {
    engine_.AddUser(data, stream);
    blocks_->RecordUse(data, stream);
  }
  void ReleaseCached() override { blocks_->ReleaseCached(); }
  MemoryStats stats() const override { return blocks_->stats(); }
  void ResetPeak() override { blocks_->ResetPeak(); }

 private:
  SimEngine& engine_;
  std::unique_ptr<Allocator> blocks_;
};

class SimDevice final : public Device {
 public:
  SimDevice(Context& context, uint64_t seed)
      : Device(context),
        engine_({"sim.compute", "sim.comm"}, seed),
        allocator_(engine_) {}
  ~SimDevice() override { engine_.Finish(); }
  DeviceType type() const override { return kSim; }
  DeviceType kernel_type() const override { return kCpu; }
  bool host_addressable() const override { return false; }
  Allocator& allocator() override { return allocator_; }
  Stream& compute_stream() override { return engine_.stream(0); }
  Stream& comm_stream() override { return engine_.stream(1); }

  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    const Access access{device, bytes, /*write=*/false};
    compute_stream().Enqueue("copy to host", absl::MakeConstSpan(&access, 1),
                             [=] { Copy(host, device, bytes); });
    compute_stream().Synchronize();
  }
  void CopyFromHost(void* device, const void* host, int64_t bytes) override {
    const Access access{device, bytes, /*write=*/true};
    compute_stream().Enqueue("copy from host", absl::MakeConstSpan(&access, 1),
                             [=] { Copy(device, host, bytes); });
    compute_stream().Synchronize();
  }

 private:
  static void Copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  SimEngine engine_;
  SimAllocator allocator_;
};

}  // namespace

std::unique_ptr<Device> MakeSimDevice(Context& context, uint64_t seed) {
  return std::make_unique<SimDevice>(context, seed);
}

}  // namespace espalier::internal
