"""Measures a text and prints JSON.

    python3 stats.py "Some text." --top 5 --skip knack,skill
"""

import argparse
import json
import re
import sys
from collections import Counter

# Average silent reading of English non-fiction.
WORDS_PER_MINUTE = 238

COMMON = set(
    "a an and are as at be been but by can did do does for from had has have he her his i if in is it its me my no not "
    "of on or our she so that the their them then there these they this to was we were what when which who will with "
    "you your".split())

WORD = re.compile(r"[^\W\d_]+(?:['\u2019\-][^\W\d_]+)*|\d+(?:[.,]\d+)*")


def syllables(word):
    """Counts the vowel groups of an English word; a silent e at the end does not count."""
    groups = len(re.findall(r"[aeiouy\u00e4\u00f6\u00fc]+", word.lower()))
    if word.lower().endswith("e") and not word.lower().endswith("le") and groups > 1:
        groups -= 1
    return max(1, groups)


def sentence_count(text):
    """Counts runs of sentence ends that are followed by white space or the end."""
    found = len(re.findall(r"[.!?\u2026\u3002]+[\"')\]\u201d\u2019]*(?=\s|$)", text))
    tail = re.split(r"[.!?\u2026\u3002]+[\"')\]\u201d\u2019]*(?=\s|$)", text)[-1]
    return found + (1 if WORD.search(tail) else 0)


def measure(text, top=5, skip=()):
    """Returns the statistics as a dict; reading_ease is None without words."""
    words = WORD.findall(text)
    sentences = sentence_count(text)
    left_out = COMMON | {word.strip().lower() for word in skip}
    frequent = Counter(word.lower() for word in words if word.lower() not in left_out and len(word) > 1)
    ranked = sorted(frequent.items(), key=lambda entry: (-entry[1], entry[0]))
    ease = None
    if words and sentences:
        per_word = sum(syllables(word) for word in words) / len(words)
        ease = round(206.835 - 1.015 * len(words) / sentences - 84.6 * per_word, 1)
    return {
        "characters": len(text),
        "words": len(words),
        "unique_words": len({word.lower() for word in words}),
        "sentences": sentences,
        "reading_seconds": round(len(words) * 60 / WORDS_PER_MINUTE),
        "reading_ease": ease,
        "top_words": [{"word": word, "count": count} for word, count in ranked[:top]],
    }


def main():
    parser = argparse.ArgumentParser(description="Measures a text and prints JSON.")
    parser.add_argument("text")
    parser.add_argument("--top", default="5")
    parser.add_argument("--skip", default="")
    options = parser.parse_args()
    # A model may send 5.0 or "5"; both mean five.
    try:
        top = float(options.top)
    except ValueError:
        top = -1
    if not 0 <= top <= 50 or top != int(top):
        sys.exit("top must be a whole number from 0 to 50, not %r" % options.top)
    print(json.dumps(measure(options.text, int(top), options.skip.split(",")), ensure_ascii=False))


if __name__ == "__main__":
    main()
