#include "espalier/io/internal/bpe.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/byte_level.h"

namespace espalier::internal {
namespace {

using ::testing::HasSubstr;

// A vocabulary: tokens by id, and merges by rank.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;
};

std::string RandomWord(std::mt19937* random, size_t bytes, uint32_t letters) {
  std::string word;
  while (word.size() < bytes) {
    word.push_back(static_cast<char>('a' + (*random)() % letters));
  }
  return word;
}

// All 256 bytes, then tokens made of two earlier ones at random; `shuffle`
// gives merges another order than ids.
Vocabulary RandomVocabulary(std::mt19937* random, uint32_t letters,
                            int num_merges, bool shuffle) {
  Vocabulary vocabulary;
  std::map<std::string, bool> known;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<std::string> parts;
  for (uint32_t i = 0; i < letters; ++i) {
    parts.emplace_back(1, static_cast<char>('a' + i));
  }
  for (int i = 0; i < num_merges; ++i) {
    const std::string left = parts[(*random)() % parts.size()];
    const std::string right = parts[(*random)() % parts.size()];
    if (left.size() + right.size() > 12) continue;
    if (!known.emplace(left + right, true).second) continue;
    parts.push_back(left + right);
    vocabulary.tokens.push_back(left + right);
    vocabulary.merges.emplace_back(left, right);
  }
  if (shuffle) {
    std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), *random);
  }
  return vocabulary;
}

Bpe LoadMerges(const Vocabulary& vocabulary) {
  JsonValue::Object vocab;
  JsonValue::Array merges;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    vocab.push_back(
        {BytesToChars(vocabulary.tokens[id]), static_cast<int64_t>(id)});
  }
  for (const auto& [left, right] : vocabulary.merges) {
    merges.push_back(JsonValue::Array{BytesToChars(left), BytesToChars(right)});
  }
  const JsonObject model =
      JsonObject::From(JsonValue::Object{{"vocab", std::move(vocab)},
                                         {"merges", std::move(merges)}},
                       "test")
          .value();
  return Bpe::Load(model, /*byte_level=*/true).value();
}

// Merging as it is defined: the pair of the lowest rank, leftmost first.
template <typename RankOf>
std::vector<std::string> MergeByDefinition(absl::string_view word,
                                           RankOf rank_of) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    int best = -1;
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const int rank = rank_of(parts[i], parts[i + 1]);
      if (rank >= 0 && (best < 0 || rank < best)) {
        best = rank;
        place = i;
      }
    }
    if (best < 0) return parts;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

std::string Encode(const Bpe& bpe, const Vocabulary& vocabulary,
                   absl::string_view word, BpeScratch* scratch) {
  std::vector<int32_t> ids;
  const absl::Status status = bpe.Encode(word, false, scratch, &ids);
  if (!status.ok()) return status.ToString();
  std::vector<std::string> parts;
  parts.reserve(ids.size());
  for (const int32_t id : ids) {
    parts.push_back(vocabulary.tokens[static_cast<size_t>(id)]);
  }
  return absl::StrJoin(parts, "|");
}

TEST(BpeTest, MergesAsDefined) {
  std::mt19937 random(21);
  for (int round = 0; round < 60; ++round) {
    const uint32_t letters = 2 + random() % 4;
    const Vocabulary vocabulary =
        RandomVocabulary(&random, letters, 60, /*shuffle=*/true);
    std::map<std::pair<std::string, std::string>, int> ranks;
    for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
      ranks[vocabulary.merges[i]] = static_cast<int>(i);
    }
    const Bpe bpe = LoadMerges(vocabulary);
    BpeScratch scratch;
    for (int i = 0; i < 40; ++i) {
      // Cached, merged in an array, merged with a heap; a letter that no merge
      // knows cuts words.
      const size_t bytes = 1 + random() % (i % 2 == 0 ? 30 : 200);
      const std::string word = RandomWord(&random, bytes, letters + i % 2);
      const std::string expected = absl::StrJoin(
          MergeByDefinition(word,
                            [&](const std::string& a, const std::string& b) {
                              const auto found = ranks.find({a, b});
                              return found == ranks.end() ? -1 : found->second;
                            }),
          "|");
      EXPECT_EQ(Encode(bpe, vocabulary, word, &scratch), expected);
      EXPECT_EQ(Encode(bpe, vocabulary, word, &scratch), expected);
    }
  }
}

TEST(BpeTest, RanksMergeWhateverMakesAToken) {
  std::mt19937 random(22);
  for (int round = 0; round < 60; ++round) {
    const uint32_t letters = 2 + random() % 4;
    const Vocabulary vocabulary =
        RandomVocabulary(&random, letters, 60, /*shuffle=*/false);
    std::map<std::string, int> ranks;
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      ranks[vocabulary.tokens[i]] = static_cast<int>(i);
    }
    const Bpe bpe = Bpe::FromRanks(vocabulary.tokens, "test").value();
    BpeScratch scratch;
    for (int i = 0; i < 40; ++i) {
      const size_t bytes = 1 + random() % (i % 2 == 0 ? 12 : 200);
      const std::string word = RandomWord(&random, bytes, letters);
      std::string expected = word;  // a token stays whole
      if (!ranks.contains(word)) {
        expected = absl::StrJoin(
            MergeByDefinition(word,
                              [&](const std::string& a, const std::string& b) {
                                const auto found = ranks.find(a + b);
                                return found == ranks.end() ? -1
                                                            : found->second;
                              }),
            "|");
      }
      EXPECT_EQ(Encode(bpe, vocabulary, word, &scratch), expected);
    }
  }
}

TEST(BpeTest, LongWordsTakeStepsInProportion) {
  std::mt19937 random(23);
  const Vocabulary vocabulary = RandomVocabulary(&random, 3, 200, true);
  const Bpe bpe = LoadMerges(vocabulary);
  for (const size_t bytes : {size_t{1} << 16, size_t{1} << 20}) {
    BpeScratch scratch;
    std::vector<int32_t> ids;
    ASSERT_TRUE(
        bpe.Encode(RandomWord(&random, bytes, 3), false, &scratch, &ids).ok());
    EXPECT_GT(scratch.num_steps, 0);
    // Each merge puts at most two more into the heap.
    EXPECT_LE(scratch.num_steps, static_cast<int64_t>(3 * bytes));
  }
}

TEST(BpeTest, RefusesRanksThatContradictThemselves) {
  std::vector<std::string> tokens;
  tokens.reserve(256);
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  EXPECT_TRUE(Bpe::FromRanks(tokens, "t").ok());
  const auto refusal = [](const std::vector<std::string>& list) {
    return std::string(Bpe::FromRanks(list, "t").status().message());
  };
  std::vector<std::string> bad = tokens;
  bad.emplace_back("a");
  EXPECT_EQ(refusal(bad), "t: token 256, \"a\", is empty or stands twice");
  bad.back() = "";
  EXPECT_THAT(refusal(bad), HasSubstr("token 256"));
  bad = tokens;
  bad[7] = "xy";
  EXPECT_EQ(refusal(bad), "t: no token for byte 7");
}

TEST(WordCacheTest, HoldsTheLatestWordOfAPlace) {
  WordCache cache;
  std::mt19937 random(24);
  for (int i = 0; i < 100000; ++i) {
    const std::string word = RandomWord(&random, 1 + random() % 30, 20);
    std::string other = word;
    other[random() % other.size()] ^= 1;
    const int32_t ids[] = {i, i + 1};
    cache.SlotOf(word).Set(word, ids);
    ASSERT_TRUE(cache.SlotOf(word).Holds(word));
    EXPECT_THAT(cache.SlotOf(word).ids(), ::testing::ElementsAre(i, i + 1));
    EXPECT_FALSE(cache.SlotOf(word).Holds(other)) << word << " " << other;
    EXPECT_FALSE(cache.SlotOf(word).Holds(word.substr(1)));
  }
}

}  // namespace
}  // namespace espalier::internal
