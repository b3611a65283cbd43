#include "espalier/dist/mesh.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MeshTest, GroupsOfTwoTimesThreeTimesTwo) {
  const auto mesh = Mesh::Create({2, 1, 3, 2}, 12);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(mesh->coordinate(9, MeshAxis::kTp), 1);
  EXPECT_EQ(mesh->coordinate(9, MeshAxis::kDp), 1);
  EXPECT_EQ(mesh->coordinate(9, MeshAxis::kPp), 1);
  EXPECT_THAT(mesh->Group(9, {MeshAxis::kTp}), ElementsAre(8, 9));
  EXPECT_THAT(mesh->Group(9, {MeshAxis::kDp}), ElementsAre(7, 9, 11));
  EXPECT_THAT(mesh->Group(9, {MeshAxis::kPp}), ElementsAre(3, 9));
  EXPECT_THAT(mesh->Group(9, {MeshAxis::kCp}), ElementsAre(9));
  EXPECT_THAT(mesh->Group(9, {MeshAxis::kTp, MeshAxis::kPp}),
              ElementsAre(2, 3, 8, 9));
}

TEST(MeshTest, EveryAxisPartsTheWorld) {
  const auto mesh = Mesh::Create({2, 3, 2, 2}, 24);
  ASSERT_TRUE(mesh.ok());
  for (int a = 0; a < kNumMeshAxes; ++a) {
    const auto axis = static_cast<MeshAxis>(a);
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < 24; ++rank) {
      const std::vector<int> group = mesh->Group(rank, {axis});
      EXPECT_EQ(static_cast<int>(group.size()), mesh->size(axis));
      groups.insert(group);
    }
    EXPECT_EQ(static_cast<int>(groups.size()), 24 / mesh->size(axis));
  }
}

TEST(MeshTest, RefusesSizesThatDoNotFillTheWorld) {
  EXPECT_THAT(Mesh::Create({2, 1, 2, 1}, 8).status().message(),
              HasSubstr("tp=2,cp=1,dp=2,pp=1 does not fill a world of 8"));
  EXPECT_THAT(Mesh::Create({2, 0, 2, 1}, 4).status().message(),
              HasSubstr("mesh axis cp is 0"));
  EXPECT_FALSE(Mesh::Create({1 << 20, 1 << 20, 1 << 20, 1 << 20}, 1).ok());
}

}  // namespace
}  // namespace espalier
