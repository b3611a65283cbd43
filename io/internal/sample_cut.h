#ifndef ESPALIER_IO_INTERNAL_SAMPLE_CUT_H_
#define ESPALIER_IO_INTERNAL_SAMPLE_CUT_H_

#include <cstdint>
#include <vector>

#include "espalier/io/data_stream.h"
#include "espalier/io/sample.h"
#include "espalier/io/sample_packer.h"

namespace espalier::internal {

struct CutOptions {
  int64_t max_tokens = 0;  // of a piece, >= 2
  LongSamplePolicy long_samples = LongSamplePolicy::kSplit;
};

// Appends the pieces of sample `index` of a group that predict anything, and
// accounts for every token of it.
void CutSample(const EncodedSample& sample, int32_t group, int64_t index,
               const CutOptions& options, std::vector<Piece>* pieces,
               DataReport* report);

// One piece alone, as CutSample makes it. `ref` lies in the sample.
Piece MakePiece(const EncodedSample& sample, const PieceRef& ref,
                const CutOptions& options);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SAMPLE_CUT_H_
