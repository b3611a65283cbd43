#include "espalier/autograd/offload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::autograd {

namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kCopyGrain = int64_t{1} << 20;

class InFile final : public PackedBytes {
 public:
  InFile(Device& device, std::shared_ptr<FileMap> map, int64_t offset,
         int64_t num_bytes)
      : device_(device),
        map_(std::move(map)),
        offset_(offset),
        num_bytes_(num_bytes) {}
  Tensor Unpack() override {
    map_->WillNeed(offset_, num_bytes_);
    const uint8_t* const data = map_->bytes().data() + offset_;
    if (device_.type() == kCpu) {
      return Tensor::MapReadOnly(device_, {num_bytes_}, kU8, data, map_);
    }
    Tensor bytes = Tensor::Empty(device_, {num_bytes_}, kU8);
    device_.CopyFromHost(bytes.view().pointer, data, num_bytes_);
    return bytes;
  }

 private:
  Device& device_;
  const std::shared_ptr<FileMap> map_;
  const int64_t offset_;
  const int64_t num_bytes_;
};

// Takes the place of bytes that have no data.
class Counted final : public PackedBytes {
 public:
  Counted(Device& device, int64_t num_bytes)
      : device_(device), num_bytes_(num_bytes) {}
  Tensor Unpack() override { return Tensor::Empty(device_, {num_bytes_}, kU8); }

 private:
  Device& device_;
  const int64_t num_bytes_;
};

class OnDevice final : public PackedBytes {
 public:
  OnDevice(Device& home, Tensor bytes)
      : home_(home), bytes_(std::move(bytes)) {}
  Tensor Unpack() override { return bytes_.CopyTo(home_); }

 private:
  Device& home_;
  const Tensor bytes_;
};

void CopyOut(const Tensor& bytes, uint8_t* to) {
  Device& device = bytes.device();
  if (device.type() != kCpu) {
    device.CopyToHost(to, bytes.view().pointer, bytes.num_bytes());
    return;
  }
  const auto* const from = bytes.data<uint8_t>();
  device.context().pool().ParallelFor(
      bytes.num_bytes(), kCopyGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
}

}  // namespace

FileOffload::FileOffload(std::string dir, const FileOffloadOptions& options)
    : dir_(std::move(dir)), options_(options) {}

std::unique_ptr<PackedBytes> FileOffload::Pack(absl::string_view,
                                               const Tensor& bytes) {
  const int64_t num_bytes = bytes.num_bytes();
  Device& device = bytes.device();
  if (num_bytes < options_.min_bytes) return nullptr;
  if (device.type() == kMeta) {
    return std::make_unique<Counted>(device, num_bytes);
  }
  if (chunk_ == nullptr || chunk_used_ + num_bytes > chunk_->size()) {
    chunk_ = nullptr;
    absl::StatusOr<std::shared_ptr<FileMap>> chunk = FileMap::CreateTemporary(
        dir_, std::max(options_.chunk_bytes, num_bytes));
    if (!chunk.ok()) internal::Fail(chunk.status());
    chunk_ = *std::move(chunk);
    chunk_used_ = 0;
  }
  const int64_t offset = chunk_used_;
  CopyOut(bytes, chunk_->mutable_bytes().data() + offset);
  chunk_->DontNeed(offset, num_bytes);
  chunk_used_ += RoundUp(num_bytes, kPageBytes);
  return std::make_unique<InFile>(device, chunk_, offset, num_bytes);
}

std::unique_ptr<PackedBytes> DeviceOffload::Pack(absl::string_view,
                                                 const Tensor& bytes) {
  Device& home = bytes.device();
  if (&home == &target_ || bytes.num_bytes() < min_bytes_) return nullptr;
  if (home.type() == kMeta) {
    return std::make_unique<Counted>(home, bytes.num_bytes());
  }
  return std::make_unique<OnDevice>(home, bytes.CopyTo(target_));
}

}  // namespace espalier::autograd
