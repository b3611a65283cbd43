# SentencePiece models (docs/adr: tokenizers). Debian has no package of it that
# can be installed for a second architecture, so a cross build goes without:
# loading such a model then says so.
set(ESPALIER_SENTENCEPIECE_LIBS "")
find_path(ESPALIER_SENTENCEPIECE_INCLUDE sentencepiece_processor.h)
find_library(ESPALIER_SENTENCEPIECE_LIBRARY sentencepiece)
if(ESPALIER_SENTENCEPIECE_INCLUDE AND ESPALIER_SENTENCEPIECE_LIBRARY)
  set(ESPALIER_SENTENCEPIECE_LIBS "${ESPALIER_SENTENCEPIECE_LIBRARY}")
  set_source_files_properties(io/internal/sentence_piece_model.cc PROPERTIES
    COMPILE_DEFINITIONS ESPALIER_SENTENCEPIECE=1)
elseif(CMAKE_CROSSCOMPILING)
  message(STATUS "SentencePiece not found: its models cannot be loaded")
else()
  message(FATAL_ERROR "SentencePiece not found: run ./setup "
    "(libsentencepiece-dev)")
endif()
