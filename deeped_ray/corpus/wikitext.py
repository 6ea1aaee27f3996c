"""Wikitext -> plain text with hyperlinks at character offsets.

    hide      comments, references, formulas, then templates and tables: gone, with all that is inside them
    strip     quotes, tags, list and heading marks, external links: gone, their text stays
    link      what is left is text with [[...]]: cut at these, and put together again with the links' places

Each step is a pass of regular expressions that begin with a fixed character, so prose is leapt over, and that read no
stretch of text twice, so the time is linear in the page, whatever is unbalanced. A bracket that never closes is plain
text.
"""

import html
import re
from itertools import accumulate
from urllib.parse import unquote

from deeped_ray.corpus.persons import is_person
from deeped_ray.corpus.wiki_words import LANGUAGE_CODES, NAMESPACES, SHOWN_PREFIXES, words
from deeped_ray.corpus.wikidump import RawPage, SiteInfo
from deeped_ray.text import UNSPACED, bare_title, normalize_title
from deeped_ray.types import Link, Page

_HIDDEN = ("ref", "math", "gallery", "timeline", "syntaxhighlight", "source", "score", "imagemap", "chem", "graph")
_OPENING = re.compile(rf"<!--|<(nowiki|{'|'.join(_HIDDEN)})\b([^<>]*)>", re.IGNORECASE)
_CLOSING = {tag: re.compile(rf"</{tag}\s*>", re.IGNORECASE) for tag in (*_HIDDEN, "nowiki")}
# `|}` ends a table, but in `{{a|}}` the bar ends an empty argument: the number of braces after it tells
_BRACES = re.compile(r"(\{\{|\}\}|\{\||\|\}(?=(?:\}\})*(?!\})))")
_OPENED_BY = {"}}": "{{", "|}": "{|"}
# One pattern for each first character: the engine looks for a fixed one some five times faster than for any of several.
# A run must not be shared out between two quantifiers in more than one way, hence the look-arounds: that is quadratic.
_STRIPPED = (
    (re.compile(r"<[bB][rR]\b[^<>]*>"), "\n"),
    (re.compile(r"</?[a-zA-Z][^<>]*>"), ""),
    (re.compile(r"''+"), ""),
    (re.compile(r"__[A-Z]+__"), ""),
    (re.compile(r"=(?<!==)=*[ \t]*$", re.MULTILINE), ""),
    (re.compile(r"\n(?:[*#:;]+|=+|----+)"), "\n"),
    (
        re.compile(
            r"\[(?:[a-z]+:)?//[^\s\[\]]*(?![^\s\[\]])[ \t]*(?![ \t])([^\[\]\n]*(?:\[\[[^\[\]]*\]\][^\[\]\n]*)*)\]"
        ),
        r"\1",
    ),
)
# An opening bracket, with all of the link and its trail ([[dog]]s) unless another link stands inside. Where no space ends a
# word there are no trails: they would reach to the end of the clause.
_LINK = re.compile(rf"\[\[(?!\[)(?:([^\[\]]*(?:(?:\[(?!\[)|\](?!\]))[^\[\]]*)*)\]\]((?:(?![{UNSPACED}])[^\W\d_])*))?")
# one word after the sign, but for Persian
_REDIRECT = re.compile(r"\s*#(?:تغییر مسیر|[^\s\[\]]+)\s*(?::\s*)?\[\[([^\[\]|#]+)")
_TEMPLATE_NAME = re.compile(r"\{\{\s*([^{}|\n]{1,60})")
_MAX_NESTING = 20  # no page puts pictures into captions this deep, and each level reads those inside it again
# English names work in every wiki; `image` is what File was called before 2009. The dump's own names are added to these.
_OTHER_PREFIXES = {
    *("category", "file", "image", "media", "template", "help", "portal", "wikipedia", "project", "user", "talk"),
    *("special", "draft", "module", "mediawiki", "timedtext", "book", *SHOWN_PREFIXES),
}
_DISAMBIGUATION = tuple(words("disambiguation templates"))
_DISAMBIGUATION_TITLES = words("disambiguation titles")


def parse_page(raw: RawPage, site: SiteInfo = SiteInfo()) -> Page:  # noqa: B008 - frozen
    """A redirect, or a page with its plain text and hyperlinks; links to the page itself are dropped."""
    redirect = raw.redirect
    if redirect is None and raw.wikitext[:20].lstrip().startswith("#"):
        match = _REDIRECT.match(raw.wikitext)
        redirect = normalize_title(match.group(1)) if match else None
    if redirect is not None:
        return Page(raw.page_id, raw.title, "", redirect=redirect)
    text, links = parse_wikitext(raw.wikitext, site.namespaces)
    links = [link for link in links if link.target != raw.title]
    if is_disambiguation(raw):
        return Page(raw.page_id, raw.title, text, tuple(links), is_disambiguation=True)
    return Page(
        raw.page_id, raw.title, text, tuple(links), is_person=is_person(raw.title, raw.wikitext, text, site.language)
    )


def is_disambiguation(raw: RawPage) -> bool:
    """By title suffix, magic word or template, in the forms the larger language editions use."""
    suffix = raw.title.rpartition("(")[2].removesuffix(")").lower() if raw.title.endswith(")") else ""
    if suffix in _DISAMBIGUATION_TITLES or "__DISAMBIG__" in raw.wikitext:
        return True
    for match in _TEMPLATE_NAME.finditer(raw.wikitext):
        name = match.group(1).strip().lower().replace("_", " ")
        if name.endswith((" needed", "-inline")) or name.startswith(("infobox", "cite", "for ", "about")):
            continue
        if name.startswith(_DISAMBIGUATION) or name.endswith(("disambiguation", "disambig")):
            return True
    return False


def parse_wikitext(wikitext: str, namespaces: frozenset[str] = frozenset()) -> tuple[str, list[Link]]:
    """Plain text and its links; `namespaces` are the wiki's own names for all but the main one."""
    text = "\n" + _without_braces(_without_hidden(wikitext))  # so that the first line begins as all others do
    for pattern, replacement in _STRIPPED:
        text = pattern.sub(replacement, text)
    return _take_links(text[1:], namespaces)


def _without_hidden(wikitext: str) -> str:
    """Drop comments and elements that hold no prose; protect the markup inside <nowiki>. Linear, whatever is unclosed."""
    pieces, position = [], 0
    unclosed: set[str] = set()
    for match in _OPENING.finditer(wikitext):
        if match.start() < position:
            continue
        tag = (match.group(1) or "").lower()
        if not tag:
            end = wikitext.find("-->", match.end())
            content, after = "", len(wikitext) if end < 0 else end + len("-->")
        elif match.group(2).endswith("/"):
            content, after = "", match.end()
        elif tag in unclosed or not (closing := _CLOSING[tag].search(wikitext, match.end())):
            unclosed.add(tag)  # then no later one is closed either, and need not be looked for
            continue
        else:
            content = _escape(wikitext[match.end() : closing.start()]) if tag == "nowiki" else ""
            after = closing.end()
        pieces += [wikitext[position : match.start()], content]
        position = after
    return "".join([*pieces, wikitext[position:]])


def _without_braces(wikitext: str) -> str:
    """Drop templates and tables. A closing mark ends the last one of its kind, with whatever is still open inside."""
    if "{" not in wikitext:
        return wikitext
    before, *pieces = _BRACES.split(wikitext)
    kept = [before]
    opened: list[tuple[str, int]] = []  # opening marks with their places in `kept`
    num_opened = {"{{": 0, "{|": 0}
    for mark, after in zip(pieces[::2], pieces[1::2], strict=True):
        if mark in num_opened:
            opened.append((mark, len(kept)))
            num_opened[mark] += 1
            kept.append(mark + after)
        elif num_opened[_OPENED_BY[mark]]:
            last = ""
            while last != _OPENED_BY[mark]:
                last, place = opened.pop()
                num_opened[last] -= 1
            kept[place:] = [after]
        else:
            kept.append(mark + after)
    return "".join(kept)


def _escape(text: str) -> str:
    """Write markup characters as entities, which are resolved again when the text comes out."""
    return re.sub(r"[\[\]{}|'<>=*#:;_-]", lambda match: f"&#{ord(match.group())};", text)


def _take_links(text: str, namespaces: frozenset[str]) -> tuple[str, list[Link]]:
    """Put text without other markup together again from what stands between links and what the links show."""
    before, *pieces = _LINK.split(text)
    shown = [before]
    targets: dict[int, str] = {}  # titles, by the place in `shown` of the text that leads to them
    opened: list[int] = []  # places of brackets that have another link inside
    for content, trail, after in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        if content is None:
            if len(opened) < _MAX_NESTING:
                opened.append(len(shown))
            shown.append("[[")
        else:
            anchor, target = _read_link(content, namespaces)
            if target:
                targets[len(shown)] = target
            shown.append(anchor + trail)
        if opened and "]]" in after:
            *closed, after = after.split("]]")
            for inside in closed:
                shown.append(inside)
                shown.append(_close(opened.pop(), shown, targets, namespaces) if opened else "]]")
        shown.append(after)
    if "&" in text:
        shown = [html.unescape(piece) if "&" in piece else piece for piece in shown]
    ends = list(accumulate(map(len, shown)))
    links = [Link(ends[at - 1], ends[at], target) for at, target in targets.items() if shown[at].strip()]
    return "".join(shown), links


def _read_link(content: str, namespaces: frozenset[str]) -> tuple[str, str]:
    """What a link shows, and the title it leads to, empty if that is not an article."""
    target, bar, anchor = content.partition("|")
    if not bar:
        anchor = target
    elif not anchor:  # the pipe trick: [[Apple (fruit)|]] shows "Apple"
        anchor = bare_title(target)
    if "&" in target:
        target = html.unescape(target)
    if ":" in target:
        if _is_hidden(prefix := _prefix(target), namespaces):
            is_shown = target.lstrip().startswith(":") or prefix in SHOWN_PREFIXES
            return anchor if is_shown else "", ""
        target = target.lstrip(" :")
    if "#" in target:
        target = target.partition("#")[0]
    if "%" in target:
        target = unquote(target)
    return anchor, normalize_title(target)


def _close(place: int, shown: list[str], targets: dict[int, str], namespaces: frozenset[str]) -> str:
    """What stands for the end of the bracket at `place`. Of a picture only a caption with links is prose, and stays."""
    if not _is_hidden(_prefix(shown[place + 1]), namespaces):
        return "]]"
    has_links = next(reversed(targets), 0) > place
    bars = (at for at in reversed(range(place, len(shown))) if "|" in shown[at] and at not in targets)
    caption = next(bars, len(shown)) if has_links else len(shown)
    for at in range(place, caption):
        shown[at] = ""
        targets.pop(at, None)
    if caption == len(shown):
        return ""
    shown[caption] = "\n" + shown[caption].rpartition("|")[2]
    return "\n"


def _prefix(target: str) -> str:
    """`File` of `File:Apple.jpg`, in lower case; empty if there is none."""
    prefix, _, rest = target.strip().removeprefix(":").partition(":")
    return prefix.strip().lower().replace("_", " ") if rest and "#" not in prefix else ""


def _is_hidden(prefix: str, namespaces: frozenset[str]) -> bool:
    """Whether a link with this prefix leads out of the main namespace, or to another wiki."""
    return (
        prefix in _OTHER_PREFIXES
        or prefix in namespaces
        or prefix.endswith(" talk")
        or prefix in LANGUAGE_CODES
        or prefix in NAMESPACES
    )


def is_in_other_namespace(target: str, namespaces: frozenset[str] = frozenset()) -> bool:
    """Whether a link target such as `File:Apple.jpg` or `de:Apfel` is no article of this wiki."""
    return _is_hidden(_prefix(target), namespaces)
