#ifndef ESPALIER_DIST_LOCAL_LOCAL_H_
#define ESPALIER_DIST_LOCAL_LOCAL_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"

#include "espalier/dist/communicator.h"

namespace espalier {

// A group of `size` ranks inside this process, each to be driven by a thread of
// its own; a group of one needs no other thread. A rank that waits longer than
// `timeout` for its peers fails. Host-addressable tensors only.
std::vector<std::unique_ptr<Communicator>> MakeLocalGroup(
    int size, absl::Duration timeout);

}  // namespace espalier

#endif  // ESPALIER_DIST_LOCAL_LOCAL_H_
