#ifndef ESPALIER_IO_INTERNAL_OBJECT_LISTING_H_
#define ESPALIER_IO_INTERNAL_OBJECT_LISTING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/object_store.h"

namespace espalier::internal {

// One page of the answer to ListObjectsV2.
struct ObjectListing {
  std::vector<ObjectInfo> objects;
  std::string next;  // token of the page behind this one; empty: the last
};

// Fails DATA_LOSS, `where` in front, on anything but such a page.
absl::StatusOr<ObjectListing> ParseObjectListing(absl::string_view xml,
                                                 absl::string_view where);

// "bytes" of a header or element; DATA_LOSS on anything but a number >= 0.
absl::StatusOr<int64_t> ParseObjectSize(absl::string_view text,
                                        absl::string_view where);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_OBJECT_LISTING_H_
