#ifndef ESPALIER_AUTOGRAD_OFFLOAD_H_
#define ESPALIER_AUTOGRAD_OFFLOAD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "espalier/autograd/saved_hooks.h"
#include "espalier/runtime/file_map.h"

namespace espalier::autograd {

struct FileOffloadOptions {
  int64_t min_bytes = int64_t{1} << 16;    // smaller storages stay
  int64_t chunk_bytes = int64_t{1} << 28;  // disk space is taken in these
};

// Saved tensors wait in unnamed temporary files in a folder. On the cpu device
// they are read in place there, as mapped pages, without a copy back. The space
// of a file is given back when the last of its tensors is. Bytes on the meta
// device are counted away without a file.
// Fails, while recording, with what FileMap::CreateTemporary says.
class FileOffload final : public SavedTensorHooks {
 public:
  explicit FileOffload(std::string dir, const FileOffloadOptions& options = {});
  std::unique_ptr<PackedBytes> Pack(absl::string_view name,
                                    const Tensor& bytes) override;

 private:
  const std::string dir_;
  const FileOffloadOptions options_;
  std::shared_ptr<FileMap> chunk_;  // being filled; null before the first
  int64_t chunk_used_ = 0;
};

// Saved tensors wait on `target`, of the same context as they: host memory for
// those of an accelerator. Those of `target` itself stay.
class DeviceOffload final : public SavedTensorHooks {
 public:
  explicit DeviceOffload(Device& target, int64_t min_bytes = 0)
      : target_(target), min_bytes_(min_bytes) {}
  std::unique_ptr<PackedBytes> Pack(absl::string_view name,
                                    const Tensor& bytes) override;

 private:
  Device& target_;
  const int64_t min_bytes_;
};

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_OFFLOAD_H_
