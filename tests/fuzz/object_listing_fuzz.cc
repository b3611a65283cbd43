// Input: a page of a store's listing, XML.

#include "espalier/io/internal/object_listing.h"
#include "espalier/tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto page = espalier::internal::ParseObjectListing(
      espalier::fuzz::Text(data, size), "s3://bucket");
  if (!page.ok()) return 0;
  for (const espalier::ObjectInfo& object : page->objects) {
    espalier::fuzz::Require(!object.key.empty() && object.size >= 0,
                            "an object has a key and a size");
  }
  return 0;
}
