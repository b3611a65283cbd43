#ifndef ESPALIER_RUNTIME_DEVICE_H_
#define ESPALIER_RUNTIME_DEVICE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

#include "espalier/runtime/allocator.h"
#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/stream.h"

namespace espalier {

class Context;
class ThreadPool;

// cpu: the default and complete. meta: shapes and no data. sim: an emulated
// accelerator that runs the cpu kernels on asynchronous streams.
enum class DeviceType : uint8_t { kCpu, kMeta, kSim, kCuda };

inline constexpr DeviceType kCpu = DeviceType::kCpu;
inline constexpr DeviceType kMeta = DeviceType::kMeta;
inline constexpr DeviceType kSim = DeviceType::kSim;
inline constexpr DeviceType kCuda = DeviceType::kCuda;

absl::string_view ToString(DeviceType type);

// What a kernel may use beside its arguments.
struct Exec {
  ThreadPool& pool;
  Isa isa;
  Stream& stream;
};

// Owned by a Context, which outlives it and every tensor on it.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceType type() const = 0;
  // Which rows of a kernel table run here: kCpu for cpu, meta and sim.
  virtual DeviceType kernel_type() const = 0;
  // Whether the host may read and write the memory.
  virtual bool host_addressable() const = 0;
  virtual Allocator& allocator() = 0;
  virtual Stream& compute_stream() = 0;
  virtual Stream& comm_stream() = 0;
  // Copies between host and device memory in the order of the compute stream;
  // returns when the copy is done. Null pointers are legal for 0 bytes.
  virtual void CopyToHost(void* host, const void* device, int64_t bytes) = 0;
  virtual void CopyFromHost(void* device, const void* host, int64_t bytes) = 0;

  Context& context() const { return context_; }
  Exec exec(Stream& stream) const;
  // What new tensors are counted as; set through MemoryScope.
  MemoryTag memory_tag() const { return memory_tag_; }

 protected:
  explicit Device(Context& context) : context_(context) {}

 private:
  friend class MemoryScope;
  Context& context_;
  MemoryTag memory_tag_ = MemoryTag::kActivations;
};

// Counts the tensors made on a device in its lifetime under a tag.
class MemoryScope {
 public:
  MemoryScope(Device& device, MemoryTag tag)
      : device_(device), previous_(device.memory_tag_) {
    device.memory_tag_ = tag;
  }
  ~MemoryScope() { device_.memory_tag_ = previous_; }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  Device& device_;
  MemoryTag previous_;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_DEVICE_H_
