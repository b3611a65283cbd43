#include "espalier/train/internal/demo_text.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "espalier/runtime/rng.h"

namespace espalier::demo {

namespace {

constexpr absl::string_view kWordMark = "\xe2\x96\x81";  // U+2581

// Draws from short lists, in the order of the calls.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t stream) : rng_(Rng{seed, stream}) {}

  absl::string_view Pick(absl::Span<const absl::string_view> list) {
    return list[static_cast<size_t>(
        rng_.NextBelow(static_cast<uint64_t>(list.size())))];
  }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(
                     rng_.NextBelow(static_cast<uint64_t>(high - low + 1)));
  }

 private:
  RandomSequence rng_;
};

constexpr absl::string_view kNames[] = {"Mara", "Tom",   "Lily", "Oren",
                                        "Pia",  "Jonas", "Wren", "Edda"};
constexpr absl::string_view kAnimals[] = {"fox", "goat",     "crow",
                                          "cat", "hedgehog", "horse"};
constexpr absl::string_view kPlaces[] = {"forest", "garden",   "river",
                                         "hill",   "old mill", "market"};
constexpr absl::string_view kThings[] = {"lamp",   "key",         "red ball",
                                         "letter", "silver bell", "blue kite"};
constexpr absl::string_view kMoods[] = {"happy", "sad",     "tired",
                                        "brave", "curious", "quiet"};
constexpr absl::string_view kFoods[] = {"carrot", "onion", "apple",
                                        "potato", "leek",  "pear"};
constexpr absl::string_view kDishes[] = {"soup", "pie", "stew", "salad"};
constexpr absl::string_view kSpices[] = {"salt", "pepper", "thyme", "honey"};
constexpr absl::string_view kTools[] = {"pan", "pot", "bowl", "oven dish"};

std::string Tale(Dice& dice) {
  const absl::string_view name = dice.Pick(kNames);
  const absl::string_view animal = dice.Pick(kAnimals);
  const absl::string_view place = dice.Pick(kPlaces);
  const absl::string_view thing = dice.Pick(kThings);
  return absl::StrCat(
      "Once upon a time ", name, " went to the ", place, ". ", name, " was ",
      dice.Pick(kMoods), ". There ", name, " met a ", animal, " with a ", thing,
      ". \"Will you share the ", thing, "?\" asked ", name, ". The ", animal,
      " was ", dice.Pick(kMoods), " and gave the ", thing, " to ", name,
      ". Then ", name, " and the ", animal, " walked home from the ", place,
      " and were ", dice.Pick(kMoods), ".");
}

std::string Recipe(Dice& dice) {
  const absl::string_view food = dice.Pick(kFoods);
  const absl::string_view other = dice.Pick(kFoods);
  const absl::string_view dish = dice.Pick(kDishes);
  const absl::string_view tool = dice.Pick(kTools);
  const absl::string_view spice = dice.Pick(kSpices);
  return absl::StrFormat(
      "Recipe for %s %s. Take %d %ss and %d %ss. Wash them and cut them into "
      "small pieces. Put the %ss into the %s and add %s. Cook for %d minutes. "
      "Add the %ss and stir well. Taste the %s and add more %s. Serve the %s "
      "warm.",
      food, dish, dice.Between(2, 9), food, dice.Between(2, 9), other, food,
      tool, spice, dice.Between(1, 6) * 5, other, dish, spice, dish);
}

using Word = std::vector<std::string>;

std::vector<std::string> Characters(absl::string_view text) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size();) {
    size_t length = 1;
    while (i + length < text.size() &&
           (static_cast<uint8_t>(text[i + length]) & 0xc0) == 0x80) {
      ++length;
    }
    characters.emplace_back(text.substr(i, length));
    i += length;
  }
  return characters;
}

std::map<std::string, int64_t> CountWords(
    const std::vector<std::string>& documents) {
  std::map<std::string, int64_t> counts;
  for (const std::string& document : documents) {
    for (absl::string_view word : absl::StrSplit(document, ' ')) {
      ++counts[absl::StrCat(kWordMark, word)];
    }
  }
  return counts;
}

void Merge(Word& word, const std::pair<std::string, std::string>& pair) {
  Word merged;
  for (size_t i = 0; i < word.size(); ++i) {
    if (i + 1 < word.size() && word[i] == pair.first &&
        word[i + 1] == pair.second) {
      merged.push_back(absl::StrCat(word[i], word[i + 1]));
      ++i;
    } else {
      merged.push_back(word[i]);
    }
  }
  word = std::move(merged);
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

std::vector<std::string> Tales(int64_t count, uint64_t seed) {
  Dice dice(seed, /*stream=*/1);
  std::vector<std::string> documents;
  for (int64_t i = 0; i < count; ++i) documents.push_back(Tale(dice));
  return documents;
}

std::vector<std::string> Recipes(int64_t count, uint64_t seed) {
  Dice dice(seed, /*stream=*/2);
  std::vector<std::string> documents;
  for (int64_t i = 0; i < count; ++i) documents.push_back(Recipe(dice));
  return documents;
}

std::string JoinDocuments(const std::vector<std::string>& documents) {
  return absl::StrCat(absl::StrJoin(documents, "\n\n"), "\n");
}

std::vector<std::pair<std::string, std::string>> LearnMerges(
    const std::vector<std::string>& documents, int64_t num_merges) {
  std::vector<std::pair<Word, int64_t>> words;
  for (const auto& [word, count] : CountWords(documents)) {
    words.emplace_back(Characters(word), count);
  }
  std::vector<std::pair<std::string, std::string>> merges;
  while (static_cast<int64_t>(merges.size()) < num_merges) {
    std::map<std::pair<std::string, std::string>, int64_t> pairs;
    for (const auto& [word, count] : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        pairs[{word[i], word[i + 1]}] += count;
      }
    }
    const auto best = std::max_element(
        pairs.begin(), pairs.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == pairs.end()) break;
    merges.push_back(best->first);
    for (auto& [word, count] : words) Merge(word, merges.back());
  }
  return merges;
}

std::string TokenizerJson(
    const std::vector<std::string>& documents,
    const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(absl::StrFormat("<0x%02X>", byte));
  }
  std::set<std::string> characters;
  for (const auto& [word, count] : CountWords(documents)) {
    for (std::string& c : Characters(word)) characters.insert(std::move(c));
  }
  tokens.insert(tokens.end(), characters.begin(), characters.end());
  for (const auto& [left, right] : merges) {
    const std::string token = absl::StrCat(left, right);
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) {
      tokens.push_back(token);
    }
  }
  std::vector<std::string> vocab;
  vocab.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    vocab.push_back(absl::StrCat("      ", Quoted(tokens[id]), ": ", id));
  }
  std::vector<std::string> merge_lines;
  merge_lines.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    merge_lines.push_back(
        absl::StrCat("      ", Quoted(absl::StrCat(left, " ", right))));
  }
  std::vector<std::string> added;
  added.reserve(3);
  for (int id = 0; id < 3; ++id) {
    added.push_back(absl::StrFormat(
        R"(    {"id": %d, "content": "%s", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})",
        id, tokens[static_cast<size_t>(id)]));
  }
  return absl::StrCat(
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
      "  \"padding\": null,\n  \"added_tokens\": [\n",
      absl::StrJoin(added, ",\n"),
      "\n  ],\n  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [\n"
      "    {\"type\": \"Prepend\", \"prepend\": \"",
      kWordMark,
      "\"},\n    {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
      "\"content\": \"",
      kWordMark,
      "\"}]},\n  \"pre_tokenizer\": null,\n  \"post_processor\": null,\n"
      "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [\n"
      "    {\"type\": \"Replace\", \"pattern\": {\"String\": \"",
      kWordMark,
      "\"}, \"content\": \" \"},\n    {\"type\": \"ByteFallback\"},\n"
      "    {\"type\": \"Fuse\"},\n    {\"type\": \"Strip\", \"content\": \" "
      "\", "
      "\"start\": 1, \"stop\": 0}]},\n"
      "  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, "
      "\"unk_token\": \"<unk>\",\n    \"continuing_subword_prefix\": null, "
      "\"end_of_word_suffix\": null,\n    \"fuse_unk\": true, "
      "\"byte_fallback\": true, \"ignore_merges\": false,\n    \"vocab\": {\n",
      absl::StrJoin(vocab, ",\n"), "\n    },\n    \"merges\": [\n",
      absl::StrJoin(merge_lines, ",\n"), "\n    ]\n  }\n}\n");
}

}  // namespace espalier::demo
