#include "espalier/ops/embedding/rows.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/ops/split.h"
#include "espalier/runtime/kernel.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier {

namespace {

struct PutArgs {
  View table;   // [V, H]
  View rows;    // [U] i32
  View values;  // [U, H]
};

// Rows are copied as bytes, whatever the dtype.
void Put(const PutArgs& args, const Exec& exec) {
  const int64_t row_bytes = args.table.dim(1) * SizeOf(args.table.dtype);
  const int32_t* rows = args.rows.data<const int32_t>();
  exec.pool.ParallelFor(args.rows.dim(0), RowGrain(args.table.dim(1)),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t u = begin; u < end; ++u) {
                            std::memcpy(
                                args.table.data<char>() + rows[u] * row_bytes,
                                args.values.data<const char>() + u * row_bytes,
                                static_cast<size_t>(row_bytes));
                          }
                        });
}

constexpr Kernel<PutArgs> kPut[] = {
    {kCpu, kF64, Put},
    {kCpu, kF32, Put},
    {kCpu, kBF16, Put},
};

}  // namespace

TableRows SelectRows(const Tensor& ids, int64_t vocab_size) {
  ESPALIER_CHECK(ids.ndim() == 1 && ids.dtype() == kI32 && ids.is_contiguous(),
                 "ids is ", ToString(ids));
  const int64_t count = ids.dim(0);
  const int32_t* values = ids.data<int32_t>();
  // Place of each row among those that are used, -1 for the others.
  std::vector<int32_t> place(static_cast<size_t>(vocab_size), -1);
  for (int64_t t = 0; t < count; ++t) {
    if (values[t] < 0 || values[t] >= vocab_size) {
      internal::Fail(absl::InvalidArgumentError(
          absl::StrCat("token id ", values[t], " at position ", t,
                       ", expected from 0 to ", vocab_size - 1)));
    }
    place[static_cast<size_t>(values[t])] = 0;
  }
  std::vector<int32_t> rows;
  for (size_t row = 0; row < place.size(); ++row) {
    if (place[row] < 0) continue;
    place[row] = static_cast<int32_t>(rows.size());
    rows.push_back(static_cast<int32_t>(row));
  }
  TableRows result;
  result.rows = Tensor::FromHost<int32_t>(
      ids.device(), {static_cast<int64_t>(rows.size())}, rows);
  result.index = EmptyLike(ids);
  for (int64_t t = 0; t < count; ++t) {
    result.index.mutable_data<int32_t>()[t] =
        place[static_cast<size_t>(values[t])];
  }
  return result;
}

void PutRows(const Tensor& table, const Tensor& rows, const Tensor& values) {
  ESPALIER_CHECK(table.ndim() == 2 && table.is_contiguous() &&
                     rows.ndim() == 1 && rows.dtype() == kI32 &&
                     rows.is_contiguous() &&
                     values.shape() == (Shape{rows.dim(0), table.dim(1)}) &&
                     values.dtype() == table.dtype() && values.is_contiguous(),
                 "values is ", ToString(values), " with rows ", ToString(rows),
                 " for table ", ToString(table));
  if (rows.device().host_addressable()) {
    const int32_t* named = rows.data<int32_t>();
    for (int64_t u = 0; u < rows.dim(0); ++u) {
      ESPALIER_CHECK(named[u] >= 0 && named[u] < table.dim(0), "row ", named[u],
                     " at position ", u, " of table ", ToString(table));
    }
  }
  Launch("put_rows", kPut, table,
         PutArgs{table.view(), rows.view(), values.view()}, {&rows, &values},
         {&table});
}

}  // namespace espalier
