#include "espalier/ops/embedding/rows.h"

#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/autograd/backward.h"
#include "espalier/ops/embedding/embedding.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

Tensor Ids(const std::vector<int32_t>& ids) {
  return Tensor::FromHost<int32_t>(test::Cpu(),
                                   {static_cast<int64_t>(ids.size())}, ids);
}

TEST(TableRowsTest, RowsAscendAndIndexLeadsBack) {
  const TableRows used = SelectRows(Ids({7, 2, 7, 0, 2}), 9);
  EXPECT_EQ(used.rows.num_elements(), 3);
  const int32_t* rows = used.rows.data<int32_t>();
  EXPECT_EQ(rows[0], 0);
  EXPECT_EQ(rows[1], 2);
  EXPECT_EQ(rows[2], 7);
  const std::vector<int32_t> want = {2, 1, 2, 0, 1};
  for (size_t t = 0; t < want.size(); ++t) {
    EXPECT_EQ(used.index.data<int32_t>()[t], want[t]);
  }
  const TableRows none = SelectRows(Ids({}), 9);
  EXPECT_EQ(none.rows.num_elements(), 0);
  EXPECT_EQ(none.index.num_elements(), 0);
}

// The gradient of the rows is that of the table at those rows, to the bit.
TEST(TableRowsTest, GradientEqualsTheDenseOne) {
  const Tensor table = test::FromDoubles(
      test::Cpu(), {9, 5}, kF32, ToDoubles(test::Normal({9, 5}, 1).value()));
  const Tensor dy = test::FromDoubles(
      test::Cpu(), {5, 5}, kF32, ToDoubles(test::Normal({5, 5}, 2).value()));
  const Tensor ids = Ids({7, 2, 7, 0, 2});
  const Variable dense(table, /*needs_grad=*/true);
  const Variable y = Embedding(dense, ids);
  autograd::Backward(y, dy);

  const TableRows used = SelectRows(ids, 9);
  const Variable rows(Embedding(Variable(table), used.rows).value(),
                      /*needs_grad=*/true);
  const Variable z = Embedding(rows, used.index);
  EXPECT_TRUE(test::SameBits(z.value(), y.value()));
  autograd::Backward(z, dy);
  EXPECT_EQ(rows.grad().shape(), (Shape{3, 5}));
  EXPECT_TRUE(test::SameBits(
      rows.grad(), Embedding(Variable(dense.grad()), used.rows).value()));
}

TEST(TableRowsTest, PutRowsLeavesTheOthers) {
  for (const DType dtype : {kF64, kF32, kBF16}) {
    const auto make = [&](const Shape& shape, uint64_t seed) {
      return test::FromDoubles(test::Cpu(), shape, dtype,
                               ToDoubles(test::Normal(shape, seed).value()));
    };
    const Tensor table = make({6, 5}, 1);
    const Tensor values = make({2, 5}, 2);
    PutRows(table, Ids({1, 4}), values);
    const Tensor old = make({6, 5}, 1);
    for (int64_t row = 0; row < 6; ++row) {
      const Tensor want = row == 1   ? values.Slice(0, 0, 1)
                          : row == 4 ? values.Slice(0, 1, 1)
                                     : old.Slice(0, row, 1);
      EXPECT_TRUE(test::SameBits(table.Slice(0, row, 1), want)) << row;
    }
  }
}

TEST(TableRowsTest, Refusals) {
  const absl::Status id = internal::Guard([] { SelectRows(Ids({1, 9}), 9); });
  EXPECT_EQ(id.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(id.message(), ::testing::HasSubstr("token id 9 at position 1"));
  const absl::Status shapes = internal::Guard([] {
    PutRows(Tensor::Zeros(test::Cpu(), {6, 5}, kF32), Ids({1}),
            Tensor::Zeros(test::Cpu(), {1, 4}, kF32));
  });
  EXPECT_THAT(shapes.message(), ::testing::HasSubstr("values is f32 [1, 4]"));
  EXPECT_THAT(shapes.message(), ::testing::HasSubstr("table f32 [6, 5]"));
  for (const int32_t row : {-1, 6}) {
    const absl::Status missing = internal::Guard([&] {
      PutRows(Tensor::Zeros(test::Cpu(), {6, 5}, kF32), Ids({5, row}),
              Tensor::Zeros(test::Cpu(), {2, 5}, kF32));
    });
    EXPECT_THAT(missing.message(), ::testing::HasSubstr(absl::StrCat(
                                       "row ", row, " at position 1")));
  }
}

}  // namespace
}  // namespace espalier
