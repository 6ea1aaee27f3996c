"""Names as they are compared: folded to plain letters, cut into words, halves and endings.

Case, diacritics and punctuation do not count. `name_filing` files entities under these forms, `name_index` looks mentions up by them.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from deeped_ray.text import STOP_WORDS, is_content_word, spelled_words, without_excess_marks, words_of

MIN_TYPO_LENGTH = 6
"""Shorter names with one other letter are other names: Clark, Clara."""
ACRONYM_LENGTHS = range(2, 8)
LOWER_LENGTHS = range(3, 8)
"""Of initials of words in lower case: two letters are those of too many titles."""
MIN_DIGITS = 4
LONGEST_NAME = 255
"""Wikipedia's titles have no more bytes."""
MOST_WORDS = 8
"""Of a name that are filed, and of a mention that are looked for."""
MIN_STEM, MAX_ENDING = 3, 4
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
_JOINED = re.compile(r"['’‘ʻ`.]")  # O'Neill, U.S.


# most names have no other letters: what is left of these is known beforehand
_ASCII = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)} | dict.fromkeys(b"'`.")


def fold(name: str) -> str:
    """`Beyoncé O'Neill-Größe` -> `beyonce oneill grosse`."""
    if name.isascii():
        return " ".join(name.translate(_ASCII).split())
    decomposed = unicodedata.normalize("NFKD", without_excess_marks(name))
    folded = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    folded = folded.casefold().translate(_LETTERS)
    return " ".join(words_of(_JOINED.sub("", folded).replace("_", " ")))


def squeeze(folded: str) -> str:
    return folded.replace(" ", "")


def initials_of(name: str) -> str:
    """`Office of the High Commissioner` -> `ohc`: of capitalised words."""
    words = (fold(word) for word in spelled_words(name) if word[0].isupper())
    return "".join(word[0] for word in words if word)


def lower_initials_of(title: str) -> str:
    """`Air traffic control` -> `atc`: if only the first word is capitalised, of all words but stop words."""
    first, *others = spelled_words(title) or [""]
    if not first[:1].isupper() or not others or any(not word[0].islower() for word in others):
        return ""
    words = (fold(word) for word in (first, *others) if word not in STOP_WORDS)
    return "".join(word[0] for word in words if word)


def acronym_of(surface: str) -> str:
    """The letters of a surface that may be an acronym, else nothing."""
    letters = surface.replace(".", "").replace("&", "").strip()
    return letters.lower() if letters.isalpha() and letters.isupper() and len(letters) in ACRONYM_LENGTHS else ""


class Form(NamedTuple):
    """What names are compared by."""

    squeezed: str
    words: tuple[str, ...]
    """Without stop words, numbers and single letters, which are not filed."""
    num_letters: int
    """Of all words but stop words."""


def form_of(name: str) -> Form:
    folded = fold(name)
    words = [word for word in dict.fromkeys(folded.split()) if word not in STOP_WORDS]
    return Form(squeeze(folded), tuple(filter(is_filed, words))[:MOST_WORDS], sum(map(len, words)))


def is_filed(word: str) -> bool:
    """Years and longer numbers are: `1974 Monaco Grand Prix`."""
    return is_content_word(word) or (len(word) >= MIN_DIGITS and word.isdecimal())


def is_typo(a: str, b: str) -> bool:
    """Whether one edit, or a swap of neighbours, makes one of the other; digits are no typing errors."""
    shorter = min(len(a), len(b))
    if abs(len(a) - len(b)) > 1 or shorter < MIN_TYPO_LENGTH:
        return False
    start = 0
    while start < shorter and a[start] == b[start]:
        start += 1
    end = 0
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    left, right = a[start : len(a) - end], b[start : len(b) - end]
    is_swap = len(left) == 2 and left == right[::-1]
    is_edit = len(left) <= 1 and len(right) <= 1 and left != right
    return (is_swap or is_edit) and not any(letter.isdigit() for letter in left + right)


def endings_of(one: str, other: str) -> tuple[str, str] | None:
    stem = 0
    while stem < min(len(one), len(other)) and one[stem] == other[stem]:
        stem += 1
    is_ending = stem >= MIN_STEM and max(len(one), len(other)) - stem <= MAX_ENDING
    return (one[stem:], other[stem:]) if is_ending and one != other else None


def halves(squeezed: str) -> tuple[str, str]:
    half = len(squeezed) // 2
    return f"<{len(squeezed)}:{squeezed[:half]}", f">{len(squeezed)}:{squeezed[half:]}"


def half_keys(squeezed: str) -> Iterator[str]:
    """The halves that a name has if the squeezed one is it with a typing error."""
    for length in range(max(len(squeezed) - 1, MIN_TYPO_LENGTH), len(squeezed) + 2):
        half = length // 2
        yield f"<{length}:{squeezed[:half]}"
        yield f">{length}:{squeezed[half - length :]}"
