#ifndef ESPALIER_IO_INTERNAL_TABLE_CHECK_H_
#define ESPALIER_IO_INTERNAL_TABLE_CHECK_H_

#include <cstdint>

#include "espalier/io/family_table.h"
#include "espalier/io/problem_list.h"
#include "espalier/io/tensor_catalog.h"

namespace espalier::internal {

// Whether the stored shape is the part's.
bool ShapeFits(const StoredPart& part, absl::Span<const int64_t> shape);

// Holds every tensor of the catalog against the table and the table against
// the catalog; kinds of problems and notes as in VerifyReport. Returns how many
// tensors the table has.
int64_t CheckAgainstTable(const TensorCatalog& catalog,
                          const FamilyTable& table, ProblemList* problems,
                          ProblemList* notes);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TABLE_CHECK_H_
