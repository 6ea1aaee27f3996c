"""Which pages are about a person, for coreferences such as "Such" for "Peter Such" (section 6).

    category    `[[Category:Living people]]`, `[[Category:1950 births]]`, `[[Kategorie:Geboren 1950]]`
    infobox     the page's first, if it is one for persons; in other languages a template such as `{{Personendaten}}`
    opening     "Peter Such (born 12 June 1964)": all that text without markup can tell, in English only

What other languages write stands in `wiki_words.txt`, for the larger Wikipedias.

Infoboxes are looked for where a page begins, categories where it ends, so that long pages cost no more than short ones.
"""

import re

from deeped_ray.corpus.titles import Names
from deeped_ray.corpus.wiki_words import NAMESPACES, words
from deeped_ray.storage.compressed import read_lines
from deeped_ray.storage.location import Location
from deeped_ray.text import bare_title, content_words, normalize_title
from deeped_ray.types import DeepEdError

_BEGINNING_CHARACTERS = 4_000
_END_CHARACTERS = 8_000  # there were lists of other languages after the categories until 2013
_CATEGORY = re.compile(
    r"\[\[ ?[Cc]ategory:[ _]?(?i:(?:possibly[ _])?living[ _]people"
    r"|(?:year|date)[ _]of[ _](?:birth|death)[ _](?:missing|unknown|uncertain)"
    r"|(?:\d+s?|\d+(?:st|nd|rd|th)-century)(?:[ _]BCE?)?[ _](?:births|deaths))[ _]*[|\](]"
)
_INFOBOX = re.compile(r"\{\{ ?[Ii]nfobox[ _]+([^{}|<>/]{1,60})")
_INFOBOX_ENDS = (" biography", " person", " player")
# not `musical artist`: bands have it too
_INFOBOXES = frozenset(
    [
        *("academic", "actor", "architect", "artist", "astronaut", "author", "bishop", "boxer", "cardinal"),
        *("celebrity", "chef", "christian leader", "classical composer", "clergy", "college coach", "comedian"),
        *("comics creator", "composer", "congressman", "cricketer", "criminal", "cyclist", "dancer", "economist"),
        *("engineer", "f1 driver", "fashion designer", "figure skater", "first lady", "footballer", "golfer"),
        *("governor", "gymnast", "jockey", "journalist", "judge", "martial artist", "minister", "model", "monarch"),
        *("mountaineer", "nascar driver", "noble", "office holder", "officeholder", "person", "philosopher"),
        *("pirate", "police officer", "politician", "pope", "presenter", "president", "prime minister"),
        *("professional wrestler", "racing driver", "rebbe", "rower", "royalty", "sailor", "saint", "scholar"),
        *("scientist", "senator", "serial killer", "skier", "speedway rider", "sport wrestler", "sportsperson"),
        *("spy", "sumo wrestler", "swimmer", "theologian", "vice president", "writer", "youtube personality"),
    ]
)
_ANY_CATEGORY = re.compile(r"\[\[([^\[\]|:]{1,30}):([^\[\]|]{1,80})")
_ANY_TEMPLATE = re.compile(r"\{\{([^{}|<>\n]{1,60})")
_CATEGORY_WORDS = NAMESPACES | {"category"}
_YEAR = r"(?:[^\W\d_]{1,12} )?\d+[^\s]{0,4}"
_THEIR_CATEGORY = re.compile(
    f"(?:{'|'.join(re.escape(entry).replace(re.escape('#'), _YEAR) for entry in sorted(words('categories of persons')))})"
    r"(?: [^\d]{1,12}|\.)?"
)
_THEIR_TEMPLATES = words("templates of persons")
# "Peter Such (born 12 June 1964)", also "(born Mary Smith; 1964)" and "(born )", where a template gave the date;
# "(1 May 1900 – June 2, 1980)", also with places between, if one of the dates has its day or a "c." and the two are as
# far apart as a life is long. Years alone, as in "World War I (1914–1918)", prove nothing.
_OPENING_CHARACTERS = 400
# where the subject of the first sentence ends, or at the latest the sentence; not at "J." or "Prof."
_SUBJECT_END = re.compile(r"\n|\b(?:is|was|are|were)\b|[^\W\d_]{5}\.\s")
_BORN = re.compile(r"\((?:(?:[^()]*[\s;,])?(?:born|b\.)[^()]*\d|(?:[^()]*[;,])?\s*born\s*\))")
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DAY = r"\d\d?(?:st|nd|rd|th)?"
_DATE = rf"({_DAY} {_MONTH},? |{_MONTH} {_DAY},? |\b(?:c|ca|circa)\b\.? ?)?\b(\d{{1,4}})\b"
_LIVED = re.compile(rf"\([^()]*?{_DATE}[^()\d]*?[–—-][^()\d]*?{_DATE}")
_LIFE_YEARS = range(10, 116)


def is_person(title: str, wikitext: str, text: str, language: str = "en") -> bool:
    """Whether a page is about a person, by its markup or by the first words of its plain text."""
    if language != "en" and _is_person_elsewhere(wikitext):
        return True
    return _has_category(wikitext) or _has_infobox(wikitext) or opens_with_life(title, text)


def _is_person_elsewhere(wikitext: str) -> bool:
    """By the categories and templates of other languages."""
    beginning, end = wikitext[:_BEGINNING_CHARACTERS], wikitext[-_END_CHARACTERS:]
    for prefix, name in _ANY_CATEGORY.findall(end):
        if prefix.strip().lower() in _CATEGORY_WORDS and _THEIR_CATEGORY.fullmatch(_plain(name)):
            return True
    return any(_plain(name) in _THEIR_TEMPLATES for name in _ANY_TEMPLATE.findall(f"{beginning}\n{end}"))


def _plain(name: str) -> str:
    return " ".join(name.replace("_", " ").lower().split())


def _has_category(wikitext: str) -> bool:
    place = wikitext.find("ategory:", max(len(wikitext) - _END_CHARACTERS, 0))
    return place >= 0 and bool(_CATEGORY.search(wikitext, max(place - len("[[ C"), 0)))


def _has_infobox(wikitext: str) -> bool:
    if wikitext.find("nfobox", 0, _BEGINNING_CHARACTERS) < 0:
        return False
    infobox = _INFOBOX.search(wikitext, 0, _BEGINNING_CHARACTERS)
    name = _plain(infobox[1]) if infobox else ""
    return name in _INFOBOXES or name.endswith(_INFOBOX_ENDS)


def opens_with_life(title: str, text: str) -> bool:
    """Whether a text begins with its title and, in brackets before the first verb, a birth or the dates of a life."""
    opening = text[:_OPENING_CHARACTERS].lstrip()
    life = _BORN.search(opening) or _lifetime(opening)
    if life is None or _SUBJECT_END.search(opening, 0, life.start()):
        return False
    end = _SUBJECT_END.search(opening, life.end())  # the title may follow: "Mary Smith (born 1964), known as Molly, is"
    subject = opening[: end.start() if end else None]
    return not set(content_words(bare_title(title).lower())).isdisjoint(content_words(subject.lower()))


def _lifetime(opening: str) -> re.Match[str] | None:
    lived = _LIVED.search(opening)
    is_exact = lived and (lived[1] or lived[3])
    return lived if lived and is_exact and abs(int(lived[4]) - int(lived[2])) in _LIFE_YEARS else None


def read_persons(file: Location, names: Names) -> list[int]:
    """Entities of the titles in a file, after redirects."""
    found = sorted(set(names.find_all([normalize_title(line) for line in read_lines(file)]).tolist()) - {-1})
    if not found:
        raise DeepEdError(f"{file} names no entity of the dump. Expected one title of a person a line.")
    return found
