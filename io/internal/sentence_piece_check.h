#ifndef ESPALIER_IO_INTERNAL_SENTENCE_PIECE_CHECK_H_
#define ESPALIER_IO_INTERNAL_SENTENCE_PIECE_CHECK_H_

#include <string>
#include <string_view>

namespace espalier::internal {

// What google/sentencepiece 0.1.97 trusts in a serialized model and reads
// outside of its memory where it is wrong: the table of a normalizer
// (precompiled_charsmap), a trie of s-yata/darts-clone with offsets and
// positions. Empty when every place of it that a text can lead to lies inside,
// else a sentence. Says nothing about the rest of the model.
std::string CheckSentencePieceModel(std::string_view bytes);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SENTENCE_PIECE_CHECK_H_
