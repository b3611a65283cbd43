#ifndef ESPALIER_IO_INTERNAL_VERIFY_SHARDED_H_
#define ESPALIER_IO_INTERNAL_VERIFY_SHARDED_H_

#include <memory>

#include "absl/status/status.h"

#include "espalier/io/folder.h"
#include "espalier/io/verify.h"

namespace espalier::internal {

// Whether VerifyCheckpoint has to look at a folder in this way.
bool IsSharded(const Folder& folder);

// Holds a folder that ShardCheckpoint wrote against its espalier-shards.json,
// as UnshardCheckpoint does: names, sizes, headers, the index and every piece
// of every tensor; with options.full the hashes of all data and copied files.
// Fails as VerifyCheckpoint does, and INVALID_ARGUMENT where a manifest is
// asked for, which such a folder cannot have.
absl::Status VerifySharded(const std::shared_ptr<const Folder>& folder,
                           const VerifyOptions& options, VerifyReport* report);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_VERIFY_SHARDED_H_
