#include "espalier/io/internal/chat_spans.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

EncodeOptions MatchAll() {
  EncodeOptions options;
  options.match_special_tokens = true;
  return options;
}

absl::Status Unverified(int32_t message, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "messages[", message, "]: what is trained cannot be told: ", why,
      "; put {% generation %} blocks into the template, or train on all"));
}

// One message's part of the text.
struct Emission {
  size_t begin = std::string::npos;
  size_t end = 0;
  size_t first_data = std::string::npos;  // of the message's own data
  size_t last_data = 0;
  bool scattered = false;
};

class SpanFinder {
 public:
  SpanFinder(const JinjaOutput& output, const std::vector<Stretch>& controls,
             const ChatMessages& messages, const AddedTokenMatcher& matcher,
             const absl::flat_hash_set<int32_t>& stops,
             const PromptTail& prompt_tail)
      : output_(output),
        text_(output.text),
        controls_(controls),
        messages_(messages),
        matcher_(matcher),
        stops_(stops),
        prompt_tail_(prompt_tail) {}

  absl::StatusOr<std::vector<ChatSpan>> Run() {
    Survey();
    std::vector<ChatSpan> spans;
    absl::Status status =
        output_.num_generations > 0 ? FromBlocks(&spans) : FromPrompts(&spans);
    if (!status.ok()) return status;
    for (ChatSpan& span : spans) {
      status = FindEnd(&span);
      if (status.ok()) status = Check(span);
      if (!status.ok()) return status;
    }
    for (size_t i = 1; i < spans.size(); ++i) {
      if (spans[i].begin < spans[i - 1].end) {
        return Unverified(spans[i].message, "answers overlap");
      }
    }
    return spans;
  }

 private:
  void Survey() {
    emissions_.resize(messages_.roles.size());
    size_t begin = 0;
    int32_t before = -1;
    for (const JinjaRun& run : output_.runs) {
      const JinjaMark& mark = run.mark;
      if (mark.item >= 0) {
        Emission& e = emissions_[static_cast<size_t>(mark.item)];
        e.scattered = e.scattered || (e.end > 0 && before != mark.item);
        e.begin = std::min(e.begin, begin);
        e.end = run.end;
        if (mark.source == mark.item) {
          e.first_data = std::min(e.first_data, begin);
          e.last_data = run.end;
        }
      } else if (mark.source >= 0) {
        outside_ = mark.source;
      }
      before = mark.item;
      begin = run.end;
    }
  }

  absl::Status FromBlocks(std::vector<ChatSpan>* spans) {
    size_t begin = 0;
    int32_t before = -1;
    for (const JinjaRun& run : output_.runs) {
      const JinjaMark& mark = run.mark;
      if (mark.generation >= 0) {
        if (mark.generation != before) {
          spans->push_back({mark.item, begin, run.end, false});
        }
        ChatSpan& span = spans->back();
        span.end = run.end;
        if (span.message < 0) span.message = mark.source;
      }
      before = mark.generation;
      begin = run.end;
    }
    for (const ChatSpan& span : *spans) {
      if (!messages_.IsAssistant(span.message)) {
        return Unverified(std::max(span.message, 0),
                          "a generation block shows no assistant message");
      }
    }
    return absl::OkStatus();
  }

  absl::Status FromPrompts(std::vector<ChatSpan>* spans) {
    for (int32_t i = 0; i < static_cast<int32_t>(emissions_.size()); ++i) {
      if (!messages_.IsAssistant(i)) continue;
      const Emission& e = emissions_[static_cast<size_t>(i)];
      if (e.end == 0) {
        if (outside_ < 0) continue;  // the template leaves it out
        return Unverified(
            i, "the template prints messages outside of a loop over them");
      }
      if (e.scattered) {
        return Unverified(i, "the template prints it in several places");
      }
      ChatSpan span;
      span.message = i;
      absl::Status status = FindBegin(e, &span);
      if (!status.ok()) return status;
      span.end = std::max(span.begin, e.last_data);
      spans->push_back(span);
    }
    return absl::OkStatus();
  }

  // The answer begins behind the generation prompt, whose text is the same for
  // the same kinds of message before it, or is asked for anew.
  absl::Status FindBegin(const Emission& e, ChatSpan* span) {
    const int32_t i = span->message;
    const std::string key =
        i == 0 ? "" : messages_.roles[static_cast<size_t>(i) - 1];
    const auto known = tails_.find(key);
    if (known != tails_.end() && BehindPrompt(e, known->second, span)) {
      return absl::OkStatus();
    }
    if (steady_.contains(key) && BehindCommonPart(e, known->second, span)) {
      return absl::OkStatus();
    }
    const auto tail = prompt_tail_(i);
    if (!tail.ok()) return tail.status();
    // What two turns share is taken for the others: a chat of many turns is
    // not rendered once for each.
    if (known != tails_.end() && known->second == *tail) steady_.insert(key);
    tails_[key] = *tail;
    if (BehindPrompt(e, *tail, span) || BehindCommonPart(e, *tail, span)) {
      return absl::OkStatus();
    }
    return Unverified(
        i, absl::StrCat("the template prompts with ", Quote(*tail, 60),
                        ", but prints ",
                        Quote(text_.substr(e.begin, Lead(e) - e.begin), 60),
                        " in front of the answer"));
  }
  // Where the template's own text in front of the message's data ends.
  size_t Lead(const Emission& e) const { return std::min(e.first_data, e.end); }

  bool BehindPrompt(const Emission& e, absl::string_view tail,
                    ChatSpan* span) const {
    const size_t lead = Lead(e);
    const size_t found = text_.substr(e.begin, lead - e.begin).find(tail);
    if (found == absl::string_view::npos) return false;
    span->begin = e.begin + found + tail.size();
    return true;
  }

  // Templates that open an answer in the prompt (<think>) and leave that out of
  // turns gone by share the part in front, cut where control tokens end.
  bool BehindCommonPart(const Emission& e, absl::string_view tail,
                        ChatSpan* span) const {
    const absl::string_view lead = text_.substr(e.begin, Lead(e) - e.begin);
    const std::vector<Stretch> ours = matcher_.Split(lead, MatchAll());
    const std::vector<Stretch> theirs = matcher_.Split(tail, MatchAll());
    size_t common = 0;
    bool control = false;
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      const auto part = [](absl::string_view text, const Stretch& s) {
        return text.substr(s.begin, s.end - s.begin);
      };
      if (part(lead, ours[i]) != part(tail, theirs[i])) break;
      control = control || ours[i].id >= 0;
      common = ours[i].end;
    }
    if (!control) return false;
    span->begin = e.begin + common;
    return true;
  }

  // The run that holds the byte.
  size_t RunAt(size_t byte) const {
    return static_cast<size_t>(
        std::upper_bound(output_.runs.begin(), output_.runs.end(), byte,
                         [](size_t wanted, const JinjaRun& run) {
                           return wanted < run.end;
                         }) -
        output_.runs.begin());
  }
  // The first control token at or behind the byte.
  std::vector<Stretch>::const_iterator ControlFrom(size_t byte) const {
    return std::lower_bound(controls_.begin(), controls_.end(), byte,
                            [](const Stretch& control, size_t wanted) {
                              return control.begin < wanted;
                            });
  }

  bool IsBlankTemplate(size_t begin, size_t end) const {
    if (begin < end && !IsBlank(text_.substr(begin, end - begin))) return false;
    for (size_t i = RunAt(begin); begin < end && i < output_.runs.size(); ++i) {
      if (output_.runs[i].mark.source != JinjaMark::kTemplate) return false;
      begin = output_.runs[i].end;
    }
    return true;
  }

  // Moves the end behind the token that ends the turn.
  absl::Status FindEnd(ChatSpan* span) const {
    const Emission& e = emissions_[static_cast<size_t>(span->message)];
    const bool blocks = output_.num_generations > 0;
    // Of a generation block's own text the last token counts.
    const size_t from =
        blocks ? std::max(span->begin, std::min(e.last_data, span->end))
               : span->end;
    const size_t limit = std::max(e.end, span->end);
    const Stretch* last = nullptr;
    for (auto control = ControlFrom(from);
         control != controls_.end() && control->end <= limit; ++control) {
      last = &*control;
      if (stops_.contains(control->id)) break;
    }
    if (last != nullptr) {
      span->end = std::max(last->end, blocks ? span->end : last->end);
      return absl::OkStatus();
    }
    const auto next = ControlFrom(limit);
    const size_t next_begin =
        next == controls_.end() ? text_.size() : next->begin;
    if (!IsBlankTemplate(limit, next_begin)) {
      return Unverified(span->message, "no token ends the answer");
    }
    if (next == controls_.end()) {
      span->end = limit;
      span->append_stop = true;
    } else {
      span->end = next->end;  // the next role's marker ends it
    }
    return absl::OkStatus();
  }

  // Nobody else's words are trained.
  absl::Status Check(const ChatSpan& span) const {
    size_t begin = span.begin;
    for (size_t i = RunAt(begin); begin < span.end; ++i) {
      const int32_t source = output_.runs[i].mark.source;
      if (source != JinjaMark::kTemplate && !messages_.IsAssistant(source)) {
        return Unverified(
            span.message,
            source >= 0
                ? absl::StrCat("its answer would hold text of messages[",
                               source, "]")
                : "its answer would hold text of other data");
      }
      begin = output_.runs[i].end;
    }
    return absl::OkStatus();
  }

  const JinjaOutput& output_;
  const absl::string_view text_;
  const std::vector<Stretch>& controls_;
  const ChatMessages& messages_;
  const AddedTokenMatcher& matcher_;
  const absl::flat_hash_set<int32_t>& stops_;
  const PromptTail& prompt_tail_;
  std::vector<Emission> emissions_;
  int32_t outside_ = -1;  // a message whose data is printed outside of loops
  absl::flat_hash_map<std::string, std::string> tails_;  // by role before
  absl::flat_hash_set<std::string> steady_;
};

}  // namespace

std::vector<Stretch> FindControls(const JinjaOutput& output,
                                  const AddedTokenMatcher& matcher) {
  std::vector<Stretch> controls;
  const absl::string_view text = output.text;
  size_t begin = 0;
  for (size_t i = 0; i < output.runs.size(); ++i) {
    const size_t end = output.runs[i].end;
    const bool own = output.runs[i].mark.source == JinjaMark::kTemplate;
    // Runs of the template side by side are one text.
    if (own && i + 1 < output.runs.size() &&
        output.runs[i + 1].mark.source == JinjaMark::kTemplate) {
      continue;
    }
    if (own) {
      for (Stretch stretch :
           matcher.Split(text.substr(begin, end - begin), MatchAll())) {
        if (stretch.id < 0) continue;
        stretch.begin += begin;
        stretch.end += begin;
        controls.push_back(stretch);
      }
    }
    begin = end;
  }
  return controls;
}

absl::StatusOr<std::vector<ChatSpan>> FindSpans(
    const JinjaOutput& output, const std::vector<Stretch>& controls,
    const ChatMessages& messages, const AddedTokenMatcher& matcher,
    const absl::flat_hash_set<int32_t>& stops, const PromptTail& prompt_tail) {
  return SpanFinder(output, controls, messages, matcher, stops, prompt_tail)
      .Run();
}

}  // namespace espalier::internal
