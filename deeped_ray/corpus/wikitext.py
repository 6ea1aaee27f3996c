"""Wikitext -> plain text with hyperlinks at character offsets.

One pass over the markup tokens with a stack of open brackets, so the time is linear in the page, whatever is unbalanced.
Templates, tables, references, files and categories are dropped; a bracket that never closes is plain text.
"""

import html
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from deeped_ray.corpus.wikidump import RawPage
from deeped_ray.text import normalize_title
from deeped_ray.types import Link, Page

_HIDDEN = ("ref", "math", "gallery", "timeline", "syntaxhighlight", "source", "score", "imagemap")
_NOISE = re.compile(
    r"<!--.*?(?:-->|\Z)"
    rf"|<(?:{'|'.join(_HIDDEN)})\b[^<>]*/>"
    rf"|<({'|'.join(_HIDDEN)})\b[^<>]*>.*?</\1\s*>",
    re.DOTALL | re.IGNORECASE,
)
_TOKEN = re.compile(
    r"\{\{|\}\}|\{\||\|\}|\[\[|\]\]|\]|\|"
    r"|'{2,5}"
    r"|</?[a-zA-Z][^<>]*>"
    r"|\[(?:https?:)?//[^\s\[\]]*[ \t]*"
    r"|^=+|=+[ \t]*$|^[*#:;]+|^----+|__[A-Z]+__",
    re.MULTILINE,
)
_REDIRECT = re.compile(r"\s*#\w+\s*:?\s*\[\[([^\[\]|#]+)", re.IGNORECASE)
_DISAMBIGUATION = re.compile(
    r"__DISAMBIG__|\{\{\s*(?:[\w ]+[ -])?(?:disambig|disambiguation|dab|hndis|geodis|surname)\b[^{}]*\}\}",
    re.IGNORECASE,
)
_LINK_TRAIL = re.compile(r"[^\W\d_]+")
_NAMESPACE = re.compile(r"\s*:?\s*([^\[\]|:#]{2,}?)\s*:\s*\S")
_DROPPED_NAMESPACES = {
    *(
        "category",
        "file",
        "image",
        "media",
        "template",
        "help",
        "portal",
        "wikipedia",
        "user",
        "talk",
        "special",
        "draft",
    ),
    *(
        "module",
        "mediawiki",
        "wikt",
        "wiktionary",
        "commons",
        "wikisource",
        "wikiquote",
        "wikidata",
        "s",
        "c",
        "d",
        "q",
    ),
}
_PARENTHESIS = re.compile(r"\s*\([^()]*\)$|,[^,]*$")


@dataclass(slots=True)
class _Frame:
    """Text gathered since an opening bracket."""

    opening: str
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    links: list[Link] = field(default_factory=list)
    bars: list[int] = field(default_factory=list)

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        self.length += len(piece)

    def append(self, other: "_Frame", *, literally: bool) -> None:
        """Take over another frame's text and links, with its opening bracket if that turned out to be plain text."""
        if literally:
            self.add(other.opening)
        shift = self.length
        self.links.extend(Link(link.start + shift, link.end + shift, link.target) for link in other.links)
        self.pieces.extend(other.pieces)
        self.length += other.length

    def text(self) -> str:
        return "".join(self.pieces)


def parse_page(raw: RawPage) -> Page:
    """A redirect, or a page with its plain text and hyperlinks; links to the page itself are dropped."""
    redirect = raw.redirect
    if redirect is None and raw.wikitext[:20].lstrip().startswith("#"):
        match = _REDIRECT.match(raw.wikitext)
        redirect = normalize_title(match.group(1)) if match else None
    if redirect is not None:
        return Page(raw.page_id, raw.title, "", redirect=redirect)
    is_disambiguation = bool(_DISAMBIGUATION.search(raw.wikitext)) or raw.title.endswith("(disambiguation)")
    text, links = parse_wikitext(raw.wikitext)
    links = [link for link in links if link.target != raw.title]
    return Page(raw.page_id, raw.title, text, tuple(links), is_disambiguation=is_disambiguation)


def parse_wikitext(wikitext: str) -> tuple[str, list[Link]]:
    wikitext = _NOISE.sub("", wikitext)
    stack = [_Frame("")]
    hidden = 0  # how many templates and tables are open: text inside them is dropped when they close
    position = 0
    for match in _TOKEN.finditer(wikitext):
        if match.start() < position:  # inside a link trail
            continue
        stack[-1].add(html.unescape(wikitext[position : match.start()]))
        position = match.end()
        token = match.group()
        if token in ("[[", "{{", "{|"):
            stack.append(_Frame(token))
            hidden += token != "[["
        elif token == "]]" and stack[-1].opening == "[[":
            position = _close_link(stack, wikitext, position)
        elif token in ("}}", "|}") and hidden:
            while stack[-1].opening[0] == "[":  # a link left open inside a template goes with it
                stack.pop()
            stack.pop()
            hidden -= 1
        elif token == "|" and stack[-1].opening == "[[":
            stack[-1].bars.append(stack[-1].length)
        elif token[0] == "[":
            stack.append(_Frame(token))
        elif token == "]" and stack[-1].opening.startswith("[") and stack[-1].opening != "[[":
            external = stack.pop()
            stack[-1].append(external, literally=False)
        elif token[0] in "]}|":
            stack[-1].add(token)
        elif token.startswith("<br"):
            stack[-1].add("\n")
    stack[-1].add(html.unescape(wikitext[position:]))
    root = stack[0]
    for unclosed in stack[1:]:
        root.append(unclosed, literally=True)
    return root.text(), root.links


def _close_link(stack: list[_Frame], wikitext: str, position: int) -> int:
    """Pop a finished [[...]], put its visible text and itself into the frame below; returns where its trail ends."""
    frame, parent = stack.pop(), stack[-1]
    content = frame.text()
    target_text = content[: frame.bars[0]] if frame.bars else content
    namespace = _NAMESPACE.match(target_text)
    if namespace and _is_dropped(namespace.group(1)):
        return position
    anchor_start = frame.bars[0] if frame.bars else 0
    anchor = content[anchor_start:]
    if frame.bars and not anchor:  # the pipe trick: [[Apple (fruit)|]] shows "Apple"
        anchor = _PARENTHESIS.sub("", target_text)
    trail = _LINK_TRAIL.match(wikitext, position)
    start = parent.length
    parent.add(anchor + (trail.group() if trail else ""))
    target = normalize_title(unquote(target_text.partition("#")[0].lstrip(":")))
    if target and anchor.strip():
        parent.links.append(Link(start, parent.length, target))
    return trail.end() if trail else position


def _is_dropped(namespace: str) -> bool:
    name = namespace.strip().lower()
    # interwiki prefixes are language codes: two or three letters, or longer with a hyphen (zh-yue)
    is_language = name.isascii() and name.isalpha() and len(name) in (2, 3)
    return name in _DROPPED_NAMESPACES or name.endswith(" talk") or is_language
