#!/usr/bin/env python3
"""Holds the tokens of `espalier render --json` against the tokenizers library.

  chat_ids.py TOKENIZER.json RENDERED.jsonl

Counts chats whose ids differ from those of the library for the whole rendered
text. Chats whose content spells a control token differ by intent and are left
out (they carry a warning), and so are turns that no token ended: the token that
was appended is cut off before comparing.
"""
import json
import sys

from tokenizers import Tokenizer


def main():
    tokenizer = Tokenizer.from_file(sys.argv[1])
    same, different, spelled = 0, 0, 0
    with open(sys.argv[2], encoding="utf-8") as file:
        for line in file:
            chat = json.loads(line)
            if chat["warnings"]:
                spelled += 1
                continue
            want = tokenizer.encode(chat["text"], add_special_tokens=False).ids
            if chat["ids"][:len(want)] == want and (
                    len(chat["ids"]) - len(want) in (0, 1)):
                same += 1
            else:
                different += 1
                if different <= 3:
                    at = next((i for i, (a, b) in enumerate(
                        zip(want, chat["ids"])) if a != b), len(want))
                    print(chat["where"], "token", at, want[at - 2:at + 4],
                          chat["ids"][at - 2:at + 4])
    print(f"{same} chats equal, {different} different, {spelled} left out")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
