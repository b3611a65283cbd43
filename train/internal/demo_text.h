#ifndef ESPALIER_TRAIN_INTERNAL_DEMO_TEXT_H_
#define ESPALIER_TRAIN_INTERNAL_DEMO_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace espalier::demo {

// `count` short documents, each one paragraph; a function of (count, seed).
std::vector<std::string> Tales(int64_t count, uint64_t seed);
std::vector<std::string> Recipes(int64_t count, uint64_t seed);

// Documents separated by blank lines.
std::string JoinDocuments(const std::vector<std::string>& documents);

// Byte-pair merges learned on words, most frequent pair first, the
// lexicographically smaller pair at ties. Words are split at spaces, each with
// U+2581 in front, as SentencePiece marks them.
std::vector<std::pair<std::string, std::string>> LearnMerges(
    const std::vector<std::string>& documents, int64_t num_merges);

// A Hugging Face tokenizer.json: <unk>, <s>, </s>, 256 byte tokens, the
// characters met, and the merges' results.
std::string TokenizerJson(
    const std::vector<std::string>& documents,
    const std::vector<std::pair<std::string, std::string>>& merges);

}  // namespace espalier::demo

#endif  // ESPALIER_TRAIN_INTERNAL_DEMO_TEXT_H_
