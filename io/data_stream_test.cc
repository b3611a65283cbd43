#include "espalier/io/data_stream.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/content_hash.h"
#include "espalier/runtime/rng.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Samples of given lengths; sample i of base b has the ids b + 1000 i + 0, 1,
// ..., and does not train its first `prompt` tokens. Length -1 is a bad record.
class FakeSource final : public SampleSource {
 public:
  FakeSource(std::string name, int32_t base, std::vector<int64_t> lengths,
             int64_t prompt = 1)
      : name_(std::move(name)),
        base_(base),
        lengths_(std::move(lengths)),
        prompt_(prompt) {}
  int64_t size() const override {
    return static_cast<int64_t>(lengths_.size());
  }
  absl::StatusOr<EncodedSample> Get(int64_t index) const override {
    const int64_t length = lengths_[static_cast<size_t>(index)];
    if (length < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ":", index, ": bad"));
    }
    EncodedSample sample;
    for (int64_t i = 0; i < length; ++i) {
      sample.ids.push_back(base_ + static_cast<int32_t>(1000 * index + i));
      sample.weights.push_back(i < prompt_ ? 0 : 1);
    }
    sample.content_hash = *Hash(index);
    ++num_encoded_;
    return sample;
  }
  absl::StatusOr<uint64_t> Hash(int64_t index) const override {
    return ContentHash(absl::StrCat(name_, index));
  }
  std::string Describe() const override {
    return absl::StrCat(name_, ": ", size(), " records");
  }
  std::string Place(int64_t index) const override {
    return absl::StrCat(name_, ":", index);
  }

  int64_t num_encoded() const { return num_encoded_; }

 private:
  mutable int64_t num_encoded_ = 0;
  const std::string name_;
  const int32_t base_;
  const std::vector<int64_t> lengths_;
  const int64_t prompt_;
};

std::vector<int64_t> RandomLengths(int64_t n, uint64_t bound, uint64_t seed) {
  RandomSequence random({seed, 0});
  std::vector<int64_t> lengths;
  lengths.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    lengths.push_back(2 + static_cast<int64_t>(random.NextBelow(bound)));
  }
  return lengths;
}

DataGroup Group(std::unique_ptr<SampleSource> source, double weight = 1) {
  DataGroup group;
  group.sources.push_back(std::move(source));
  group.weight = weight;
  return group;
}

std::unique_ptr<DataStream> OneSource(std::vector<int64_t> lengths,
                                      const DataStreamOptions& options,
                                      int64_t prompt = 1) {
  std::vector<DataGroup> groups;
  groups.push_back(
      Group(std::make_unique<FakeSource>("a", 0, std::move(lengths), prompt)));
  auto stream = DataStream::Create(std::move(groups), options);
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *std::move(stream);
}

std::vector<Pack> All(DataStream& stream, int limit = 1 << 20) {
  std::vector<Pack> packs;
  Pack pack;
  while (limit-- > 0) {
    const auto more = stream.Next(&pack);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    packs.push_back(std::move(pack));
  }
  return packs;
}

// Everything a pack holds, for comparisons.
std::string Text(const std::vector<Pack>& packs) {
  std::string text;
  for (const Pack& pack : packs) {
    for (const Piece& piece : pack.pieces) {
      absl::StrAppend(&text, piece.ref.group, "/", piece.ref.sample, "[",
                      piece.ref.begin, ",", piece.ref.end, ")");
      for (size_t i = 0; i < piece.ids.size(); ++i) {
        absl::StrAppend(&text, " ", piece.ids[i], ">", piece.labels[i], "*",
                        piece.weights[i]);
      }
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

TEST(SamplePackerTest, FullestPackThatStillTakesIt) {
  SamplePacker packer(10, 3);
  std::vector<Pack> out;
  const auto add = [&](int64_t size) {
    Piece piece;
    piece.ref.end = size;
    packer.Add(std::move(piece), &out);
  };
  const auto open = [&] {
    std::vector<int64_t> sizes;
    for (const Pack& pack : packer.open()) sizes.push_back(pack.num_tokens);
    return sizes;
  };
  for (const int64_t size : {6, 7, 8}) add(size);
  add(2);  // fills the pack of 8
  EXPECT_THAT(open(), ElementsAre(6, 7));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].num_tokens, 10);
  add(3);  // fills the pack of 7
  add(5);
  add(9);
  EXPECT_THAT(open(), ElementsAre(6, 5, 9));
  add(8);  // fits nowhere: the pack of 9 goes
  EXPECT_THAT(open(), ElementsAre(6, 5, 8));
  EXPECT_EQ(out.back().num_tokens, 9);
  packer.Flush(&out);
  EXPECT_EQ(out.size(), 6u);
  EXPECT_THAT(open(), ElementsAre());
}

TEST(DataStreamTest, EachEpochHoldsEverySampleOnceInAnotherOrder) {
  DataStreamOptions options;
  options.pack_tokens = 64;
  options.num_epochs = 2;
  const auto stream = OneSource(RandomLengths(100, 40, 1), options);
  std::map<int64_t, int> seen;
  std::vector<int64_t> order;
  int64_t tokens = 0;
  for (const Pack& pack : All(*stream)) {
    EXPECT_LE(pack.num_tokens, 64);
    for (const Piece& piece : pack.pieces) {
      ++seen[piece.ref.sample];
      order.push_back(piece.ref.sample);
      tokens += piece.ref.size();
    }
  }
  EXPECT_EQ(seen.size(), 100u);
  for (const auto& [sample, count] : seen) EXPECT_EQ(count, 2) << sample;
  EXPECT_FALSE(std::equal(order.begin(), order.begin() + 100,
                          order.begin() + 100, order.end()));
  EXPECT_EQ(stream->report().num_kept_tokens, tokens);
  EXPECT_EQ(stream->report().num_tokens, tokens);
}

TEST(DataStreamTest, PacksAreNearlyFull) {
  DataStreamOptions options;
  options.pack_tokens = 2048;
  options.num_epochs = 1;
  const auto stream = OneSource(RandomLengths(5000, 600, 2), options);
  const std::vector<Pack> packs = All(*stream);
  int64_t tokens = 0;
  for (const Pack& pack : packs) tokens += pack.num_tokens;
  EXPECT_GT(static_cast<double>(tokens),
            0.98 * 2048 * static_cast<double>(packs.size()));
}

TEST(DataStreamTest, LabelsAreTheNextTokenOfTheSample) {
  DataStreamOptions options;
  options.pack_tokens = 4;
  options.shuffle = false;
  options.num_epochs = 1;
  // Six tokens, the first two of them not trained: split, the cut costs no
  // target.
  EXPECT_EQ(Text(All(*OneSource({6}, options, 2))),
            "0/0[0,4) 0>-100*0 1>2*1 2>3*1 3>4*1\n"
            "0/0[4,6) 4>5*1 5>-100*0\n");
  options.long_samples = LongSamplePolicy::kTruncate;
  EXPECT_EQ(Text(All(*OneSource({6}, options, 2))),
            "0/0[0,4) 0>-100*0 1>2*1 2>3*1 3>-100*0\n");
  const TokenBatch batch = All(*OneSource({2, 2}, options))[0].ToBatch();
  EXPECT_THAT(batch.ids, ElementsAre(0, 1, 1000, 1001));
  EXPECT_THAT(batch.labels, ElementsAre(1, -100, 1001, -100));
  EXPECT_THAT(batch.weights, ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 2, 4));
}

// A pack of prompts alone would have a loss of nothing over nothing.
TEST(DataStreamTest, PiecesThatPredictNothingAreLeftOut) {
  DataStreamOptions options;
  options.pack_tokens = 4;
  options.shuffle = false;
  options.num_epochs = 1;
  // Ten tokens, the first nine of them not trained; then two untrained samples.
  auto stream = OneSource({10, 9, 3}, options, 9);
  EXPECT_EQ(Text(All(*stream)), "0/0[8,10) 8>9*1 9>-100*0\n");
  EXPECT_EQ(stream->report().num_kept_tokens, 2);
  EXPECT_EQ(stream->report().num_untrained_tokens, 8 + 9 + 3);
  EXPECT_EQ(stream->report().num_untrained_samples, 2);
  EXPECT_EQ(ToString(stream->report()),
            "3 samples (2 too long, 0 dropped, 2 untrained), 0 bad records; 22 "
            "tokens = 2 kept (1 trained) + 0 truncated + 0 dropped + 20 "
            "untrained");
  options.long_samples = LongSamplePolicy::kTruncate;
  stream = OneSource({10}, options, 9);
  EXPECT_EQ(Text(All(*stream)), "");
  EXPECT_EQ(stream->report().num_untrained_tokens, 10);
  EXPECT_EQ(stream->report().num_untrained_samples, 1);
}

TEST(DataStreamTest, EveryTokenIsAccountedFor) {
  for (const LongSamplePolicy policy :
       {LongSamplePolicy::kSplit, LongSamplePolicy::kTruncate,
        LongSamplePolicy::kDrop}) {
    DataStreamOptions options;
    options.pack_tokens = 100;
    options.max_sample_tokens = 30;
    options.long_samples = policy;
    options.num_epochs = 1;
    std::vector<int64_t> lengths = RandomLengths(500, 90, 3);
    lengths.insert(lengths.end(), {0, 1, 30, 31});
    int64_t tokens = 0;
    for (const int64_t length : lengths) tokens += length;
    const auto stream = OneSource(lengths, options);
    int64_t kept = 0, trained = 0;
    for (const Pack& pack : All(*stream)) {
      for (const Piece& piece : pack.pieces) {
        EXPECT_LE(piece.ref.size(), 30);
        kept += piece.ref.size();
        trained += std::count_if(piece.labels.begin(), piece.labels.end(),
                                 [](int32_t label) { return label >= 0; });
      }
    }
    const DataReport& report = stream->report();
    EXPECT_EQ(report.num_samples, 504);
    EXPECT_EQ(report.num_tokens, tokens);
    EXPECT_EQ(report.num_kept_tokens, kept);
    EXPECT_EQ(report.num_trained_tokens, trained);
    EXPECT_EQ(report.num_untrained_samples, 2);
    EXPECT_EQ(report.num_tokens,
              report.num_kept_tokens + report.num_truncated_tokens +
                  report.num_dropped_tokens + report.num_untrained_tokens);
    EXPECT_GT(report.num_long_samples, 0);
    EXPECT_EQ(report.num_truncated_tokens > 0,
              policy == LongSamplePolicy::kTruncate);
    EXPECT_EQ(report.num_dropped_tokens > 0, policy == LongSamplePolicy::kDrop);
    // Splitting loses no target: one token of each sample has none before it.
    if (policy == LongSamplePolicy::kSplit) {
      EXPECT_EQ(trained, tokens - 503);
    }
  }
}

TEST(DataStreamTest, GroupsKeepTheirShareOfTokensInEveryPrefix) {
  DataStreamOptions options;
  options.pack_tokens = 50;
  options.max_open_packs = 4;
  std::vector<DataGroup> groups;
  groups.push_back(Group(
      std::make_unique<FakeSource>("a", 0, RandomLengths(300, 40, 4)), 3));
  groups.push_back(Group(
      std::make_unique<FakeSource>("b", 500000, RandomLengths(7, 10, 5)), 1));
  auto stream = DataStream::Create(std::move(groups), options);
  ASSERT_TRUE(stream.ok());
  int64_t tokens[2] = {0, 0};
  Pack pack;
  // At ties the first group comes first.
  ASSERT_TRUE(*(*stream)->Next(&pack));
  EXPECT_EQ(pack.pieces[0].ref.group, 0);
  for (const Piece& piece : pack.pieces) {
    tokens[piece.ref.group] += piece.ref.size();
  }
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(*(*stream)->Next(&pack));
    for (const Piece& piece : pack.pieces) {
      tokens[piece.ref.group] += piece.ref.size();
    }
    // Up to what open packs and one sample hold.
    EXPECT_NEAR(static_cast<double>(tokens[0]),
                3 * static_cast<double>(tokens[1]), 3 * 250);
  }
}

TEST(DataStreamTest, EndedGroupsAreLeftOut) {
  DataStreamOptions options;
  options.pack_tokens = 50;
  options.num_epochs = 2;
  std::vector<DataGroup> groups;
  groups.push_back(
      Group(std::make_unique<FakeSource>("a", 0, RandomLengths(30, 40, 4))));
  groups.push_back(
      Group(std::make_unique<FakeSource>("b", 500000, RandomLengths(7, 9, 5))));
  auto stream = DataStream::Create(std::move(groups), options);
  ASSERT_TRUE(stream.ok());
  std::map<std::pair<int, int64_t>, int> seen;
  for (const Pack& pack : All(**stream)) {
    for (const Piece& piece : pack.pieces) {
      ++seen[{piece.ref.group, piece.ref.sample}];
    }
  }
  EXPECT_EQ(seen.size(), 37u);
  for (const auto& [sample, count] : seen) EXPECT_EQ(count, 2);
}

TEST(DataStreamTest, SplitsAreDisjointAndStable) {
  DataStreamOptions options;
  options.pack_tokens = 64;
  options.num_epochs = 1;
  options.held_out_fraction = 0.2;
  std::set<int64_t> parts[2];
  for (const int64_t n : {500, 1000}) {
    std::set<int64_t> now[2];
    for (const int part : {0, 1}) {
      options.split = part == 0 ? DataSplit::kTrain : DataSplit::kHeldOut;
      const auto stream =
          OneSource(std::vector<int64_t>(static_cast<size_t>(n), 5), options);
      for (const Pack& pack : All(*stream)) {
        for (const Piece& piece : pack.pieces)
          now[part].insert(piece.ref.sample);
      }
      EXPECT_EQ(stream->report().num_other_split,
                n - static_cast<int64_t>(now[part].size()));
    }
    EXPECT_EQ(now[0].size() + now[1].size(), static_cast<size_t>(n));
    EXPECT_NEAR(static_cast<double>(now[1].size()),
                0.2 * static_cast<double>(n), 60);
    // More data moves nothing to the other side.
    for (const int part : {0, 1}) {
      EXPECT_TRUE(std::includes(now[part].begin(), now[part].end(),
                                parts[part].begin(), parts[part].end()));
      parts[part] = now[part];
    }
  }
}

TEST(DataStreamTest, OtherSplitIsNotEncoded) {
  auto source =
      std::make_unique<FakeSource>("a", 0, std::vector<int64_t>(500, 5));
  const FakeSource& counted = *source;
  std::vector<DataGroup> groups;
  groups.push_back(Group(std::move(source)));
  DataStreamOptions options;
  options.num_epochs = 1;
  options.held_out_fraction = 0.2;
  options.split = DataSplit::kHeldOut;
  const auto stream = DataStream::Create(std::move(groups), options);
  ASSERT_TRUE(stream.ok());
  All(**stream);
  EXPECT_GT(counted.num_encoded(), 0);
  EXPECT_EQ(counted.num_encoded(), (*stream)->report().num_samples);
  EXPECT_EQ(counted.num_encoded() + (*stream)->report().num_other_split, 500);
}

TEST(DataStreamTest, BadRecordsStopOrAreCounted) {
  DataStreamOptions options;
  options.pack_tokens = 64;
  options.num_epochs = 1;
  options.shuffle = false;
  Pack pack;
  EXPECT_EQ(OneSource({5, -1, 6}, options)->Next(&pack).status().message(),
            "a:1: bad");
  options.skip_bad_records = true;
  const auto stream = OneSource({5, -1, 6, -1}, options);
  const std::vector<Pack> packs = All(*stream);
  ASSERT_EQ(packs.size(), 1u);
  EXPECT_EQ(packs[0].num_tokens, 11);
  EXPECT_EQ(stream->report().num_bad_records, 2);
  EXPECT_EQ(stream->report().first_bad_record, "a:1: bad");
  // Nothing but bad records is no endless search.
  options.num_epochs = 0;
  EXPECT_THAT(
      std::string(
          OneSource({-1, 1, -1}, options)->Next(&pack).status().message()),
      AllOf(HasSubstr("no sample of 3 to train on"), HasSubstr("2 bad"),
            HasSubstr("first bad record: a:"),
            HasSubstr("1 without a token to predict"), HasSubstr("a: 3 rec")));
}

TEST(DataStreamTest, CursorContinuesBitForBitAnywhere) {
  DataStreamOptions options;
  options.pack_tokens = 32;
  options.max_sample_tokens = 20;
  options.max_open_packs = 3;
  options.skip_bad_records = true;
  std::vector<int64_t> lengths = RandomLengths(17, 70, 6);
  lengths[3] = -1;
  for (const LongSamplePolicy policy :
       {LongSamplePolicy::kSplit, LongSamplePolicy::kTruncate}) {
    for (const int64_t num_epochs : {0, 3}) {
      options.long_samples = policy;
      options.num_epochs = num_epochs;
      const auto whole = OneSource(lengths, options);
      const std::vector<Pack> expected = All(*whole, 60);
      const JsonValue end = whole->Cursor();
      EXPECT_EQ(*end.Find("ended")->AsBool(), num_epochs > 0);
      for (size_t at = 0; at <= expected.size(); ++at) {
        const auto first = OneSource(lengths, options);
        All(*first, static_cast<int>(at));
        const auto saved = ParseJsonText(*WriteJson(first->Cursor()));
        ASSERT_TRUE(saved.ok());
        const auto second = OneSource(lengths, options);
        All(*second, 5);  // wherever it stood before
        ASSERT_EQ(second->Seek(*saved), absl::OkStatus());
        const std::vector<Pack> rest = All(*second, static_cast<int>(60 - at));
        EXPECT_EQ(Text(rest), Text({expected.begin() + static_cast<int>(at),
                                    expected.end()}));
        EXPECT_EQ(*WriteJson(second->Cursor()), *WriteJson(end)) << at;
      }
    }
  }
}

TEST(DataStreamTest, RanksShareStepsAndTheCursorKnowsNoRanks) {
  DataStreamOptions options;
  options.pack_tokens = 32;
  const std::vector<int64_t> lengths = RandomLengths(50, 30, 7);
  const std::vector<Pack> expected = All(*OneSource(lengths, options), 24);
  JsonValue cursor = OneSource(lengths, options)->Cursor();
  std::vector<Pack> packs;
  for (const int64_t num_ranks : {2, 1, 4}) {  // two steps of four at each
    std::vector<std::unique_ptr<DataStream>> ranks;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      ranks.push_back(OneSource(lengths, options));
      ASSERT_EQ(ranks.back()->Seek(cursor), absl::OkStatus());
    }
    for (int step = 0; step < 2; ++step) {
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        std::vector<Pack> share;
        ASSERT_TRUE(*ranks[static_cast<size_t>(rank)]->NextStep(
            4, rank, num_ranks, &share));
        EXPECT_EQ(share.size(), static_cast<size_t>(4 / num_ranks));
        for (Pack& pack : share) packs.push_back(std::move(pack));
      }
    }
    cursor = ranks[0]->Cursor();
    EXPECT_EQ(*WriteJson(ranks.back()->Cursor()), *WriteJson(cursor));
  }
  EXPECT_EQ(Text(packs), Text(expected));
  EXPECT_THAT(std::string(OneSource(lengths, options)
                              ->NextStep(4, 0, 3, &packs)
                              .status()
                              .message()),
              HasSubstr("4 packs a step for rank 0 of 3"));
}

TEST(DataStreamTest, ForeignCursorsAreRefused) {
  DataStreamOptions options;
  options.pack_tokens = 32;
  const auto stream = OneSource({5, 6, 7}, options);
  const JsonValue cursor = stream->Cursor();
  options.seed = 1;
  const auto other = OneSource({5, 6, 7}, options);
  EXPECT_THAT(std::string(other->Seek(cursor).message()),
              AllOf(HasSubstr("seed 0"), HasSubstr("seed 1")));
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{
           {"version", "2"},
           {"groups", "[[0,3,0]]"},
           {"groups", "[[0,-1,0]]"},
           {"groups", "[]"},
           {"groups", "[[0,0]]"},
           {"open", "[[]]"},
           {"open", "[[[0,9,0,1]]]"},
           {"open", "[[[1,0,0,1]]]"},
           {"open", "[[[0,0,0,6]]]"},
           {"open", "[[[0,0,2,2]]]"},
           {"open", "3"},
           {"ready", "null"},
           {"ended", "1"},
           {"report", "{}"}}) {
    JsonValue broken = cursor;
    broken.Set(key, *ParseJsonText(value));
    const absl::Status status = stream->Seek(broken);
    EXPECT_FALSE(status.ok()) << key << " " << value;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cursor")) << status;
    // A refused cursor changes nothing.
    EXPECT_EQ(*WriteJson(stream->Cursor()), *WriteJson(cursor));
  }
}

TEST(DataStreamTest, RefusesOptionsOutOfRange) {
  const auto create = [](const DataStreamOptions& options, double weight = 1,
                         std::vector<int64_t> lengths = {4}) {
    std::vector<DataGroup> groups;
    groups.push_back(Group(
        std::make_unique<FakeSource>("a", 0, std::move(lengths)), weight));
    return std::string(
        DataStream::Create(std::move(groups), options).status().message());
  };
  DataStreamOptions options;
  EXPECT_EQ(create(options), "");
  EXPECT_THAT(create(options, 0), HasSubstr("a data weight is 0"));
  EXPECT_THAT(create(options, 1, {}), HasSubstr("no record in a: 0"));
  options.pack_tokens = 1;
  EXPECT_THAT(create(options), HasSubstr("pack_tokens is 1"));
  options.pack_tokens = 8;
  options.max_sample_tokens = 9;
  EXPECT_THAT(create(options), HasSubstr("max_sample_tokens is 9"));
  options.max_sample_tokens = 0;
  options.held_out_fraction = 1;
  EXPECT_THAT(create(options), HasSubstr("held_out_fraction is 1"));
  options.held_out_fraction = 0;
  options.max_open_packs = 0;
  EXPECT_THAT(create(options), HasSubstr("max_open_packs is 0"));
  EXPECT_THAT(
      std::string(
          DataStream::Create({}, DataStreamOptions()).status().message()),
      HasSubstr("no data"));
}

}  // namespace
}  // namespace espalier
