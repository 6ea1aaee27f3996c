"""Wikitext -> plain text with hyperlinks at character offsets.

One pass over the markup tokens with a stack of open brackets, so the time is linear in the page, whatever is unbalanced.
Templates, tables, references, files and categories are dropped; a bracket that never closes is plain text.
"""

import html
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from deeped_ray.corpus.wikidump import RawPage, SiteInfo
from deeped_ray.text import bare_title, normalize_title
from deeped_ray.types import Link, Page

_HIDDEN = ("ref", "math", "gallery", "timeline", "syntaxhighlight", "source", "score", "imagemap", "chem", "graph")
_OPENING = re.compile(rf"<!--|<(nowiki|{'|'.join(_HIDDEN)})\b([^<>]*)>", re.IGNORECASE)
_CLOSING = {tag: re.compile(rf"</{tag}\s*>", re.IGNORECASE) for tag in (*_HIDDEN, "nowiki")}
_TOKEN = re.compile(
    r"\{\{|\}\}|\{\||\|\}|\[\[|\]\]|\]|\|"
    r"|'{2,5}"
    r"|</?[a-zA-Z][^<>]*>"
    r"|\[(?:https?:)?//[^\s\[\]]*[ \t]*"
    r"|^=+|=+[ \t]*$|^[*#:;]+|^----+|__[A-Z]+__",
    re.MULTILINE,
)
_REDIRECT = re.compile(r"\s*#[^\s\[\]]+\s*:?\s*\[\[([^\[\]|#]+)")
_TEMPLATE_NAME = re.compile(r"\{\{\s*([^{}|\n]{1,60})")
_MAX_NESTING = 20
_LINK_TRAIL = re.compile(r"[^\W\d_]+")
_NAMESPACE = re.compile(r"\s*:?\s*([^\[\]|:#]{1,60}?)\s*:\s*\S")
# Links to sister projects show their text in the article, unlike those to other namespaces.
_SHOWN_PREFIXES = (
    *(
        "wikt",
        "wiktionary",
        "commons",
        "wikisource",
        "wikiquote",
        "wikinews",
        "wikibooks",
        "wikiversity",
        "wikivoyage",
        "wikidata",
    ),
    *("wikispecies", "species", "meta", "s", "c", "d", "q", "b", "n", "v", "m", "mw", "doi"),
)
# English names work in every wiki; `image` is what File was called before 2009. The dump's own names are added to these.
_OTHER_PREFIXES = {
    *("category", "file", "image", "media", "template", "help", "portal", "wikipedia", "project", "user", "talk"),
    *("special", "draft", "module", "mediawiki", "timedtext", "book", *_SHOWN_PREFIXES),
}
# codes of the larger editions; a title such as `CSI: Miami` must not be taken for one
_LANGUAGE = re.compile(
    "a[bfkmnrstyz]|b[aeghimnorsx]|c[aehkorsuvy]|d[aev]|e[elnostu]|f[afijory]|g[adlnuv]|h[aeiorturyz]|i[adegikostu]|j[av]"
    "|k[agiklmnorsuvwy]|l[abgintov]|m[ghiklnrsty]|n[aelnoryv]|o[cmrs]|p[ailst]|qu|r[mnouw]|s[acdegiklmnoqrstuvw]|t[aeghiklnorstwy]"
    "|u[gkrz]|v[eio]|w[ao]|xh|y[io]|z[ahu]|als|arz|ast|azb|ceb|ckb|hak|ilo|lmo|min|nap|nds|pms|scn|sco|szl|vec|war|wuu|yue|simple"
    r"|zh-[a-z-]+|bat-smg|be-x-old|cbk-zam|fiu-vro|map-bms|nds-nl|roa-[a-z]+"
)
# What the larger editions call their disambiguation templates and mark in titles; checked against the start of the name.
_DISAMBIGUATION = (
    *("disambig", "disamb", "dab", "hndis", "geodis", "surname", "given name", "numberdis", "set index", "sia"),
    *(
        "begriffsklärung",
        "homonym",
        "desambig",
        "disambigua",
        "dp",
        "ujednoznacznienie",
        "неоднозначност",
        "неоднозначно",
    ),
    *(
        "förgrening",
        "gren",
        "rozcestník",
        "曖昧さ回避",
        "aimai",
        "消歧义",
        "消歧義",
        "동음이의",
        "توضيح",
        "anlam ayrımı",
        "egyért",
    ),
)
_DISAMBIGUATION_SUFFIX = re.compile(
    r"\((?:disambiguation|begriffsklärung|homonymie|desambiguación|desambiguação|disambigua|doorverwijspagina"
    r"|ujednoznacznienie|значения|olika betydelser|曖昧さ回避|消歧义|消歧義|동음이의)\)$",
    re.IGNORECASE,
)


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
    return Page(raw.page_id, raw.title, text, tuple(links), is_disambiguation=is_disambiguation(raw))


def is_disambiguation(raw: RawPage) -> bool:
    """By title suffix, magic word or template, in the forms the larger language editions use."""
    if _DISAMBIGUATION_SUFFIX.search(raw.title) or "__DISAMBIG__" in raw.wikitext:
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
    wikitext = _without_hidden(wikitext)
    stack = [_Frame("")]
    hidden = 0  # how many templates and tables are open: text inside them is dropped when they close
    position = 0
    for match in _TOKEN.finditer(wikitext):
        if match.start() < position:  # inside a link trail
            continue
        stack[-1].add(html.unescape(wikitext[position : match.start()]))
        position = match.end()
        token = match.group()
        if token == "[[" and len(stack) > _MAX_NESTING and stack[-1].opening == "[[":
            stack[-1].add(token)  # no page nests links this deep; each level copies the text below it
        elif token in ("[[", "{{", "{|"):
            stack.append(_Frame(token))
            hidden += token != "[["
        elif token == "]]" and stack[-1].opening == "[[":
            position = _close_link(stack, wikitext, position, namespaces)
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
        elif token[:3].lower() == "<br":
            stack[-1].add("\n")
    stack[-1].add(html.unescape(wikitext[position:]))
    root = stack[0]
    for unclosed in stack[1:]:
        root.append(unclosed, literally=True)
    return root.text(), root.links


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


def _escape(text: str) -> str:
    """Write markup characters as entities, which are resolved again when the text comes out."""
    return re.sub(r"[\[\]{}|'<>=*#:;_-]", lambda match: f"&#{ord(match.group())};", text)


def _close_link(stack: list[_Frame], wikitext: str, position: int, namespaces: frozenset[str]) -> int:
    """Pop a finished [[...]], put its visible text and itself into the frame below; returns where its trail ends."""
    frame, parent = stack.pop(), stack[-1]
    content = frame.text()
    target_text = content[: frame.bars[0]] if frame.bars else content
    match = _NAMESPACE.match(target_text)
    prefix = match.group(1).strip().lower().replace("_", " ") if match else ""
    is_shown = target_text.lstrip().startswith(":") or prefix in _SHOWN_PREFIXES
    if prefix and not is_shown and _is_hidden(prefix, namespaces):
        if frame.links and frame.bars:  # a picture whose caption has links: the caption is prose
            _add_caption(frame, parent)
        return position
    anchor = content[frame.bars[0] :] if frame.bars else content
    if frame.bars and not anchor:  # the pipe trick: [[Apple (fruit)|]] shows "Apple"
        anchor = bare_title(target_text)
    anchor = anchor.rpartition("|")[2] if len(frame.bars) > 1 else anchor
    trail = _LINK_TRAIL.match(wikitext, position)
    start = parent.length
    parent.add(anchor + (trail.group() if trail else ""))
    target = normalize_title(unquote(target_text.partition("#")[0].lstrip(":")))
    if target and anchor.strip() and not (prefix and _is_hidden(prefix, namespaces)):
        parent.links.append(Link(start, parent.length, target))
    return trail.end() if trail else position


def _add_caption(frame: _Frame, parent: _Frame) -> None:
    caption_start = frame.bars[-1]
    parent.add("\n")
    shift = parent.length - caption_start
    parent.links.extend(
        Link(link.start + shift, link.end + shift, link.target) for link in frame.links if link.start >= caption_start
    )
    parent.add(frame.text()[caption_start:] + "\n")


def _is_hidden(prefix: str, namespaces: frozenset[str]) -> bool:
    """Whether a link with this prefix leads out of the main namespace, or to another wiki."""
    return (
        prefix in _OTHER_PREFIXES
        or prefix in namespaces
        or prefix.endswith(" talk")
        or bool(_LANGUAGE.fullmatch(prefix))
    )


def is_in_other_namespace(target: str, namespaces: frozenset[str] = frozenset()) -> bool:
    """Whether a link target such as `File:Apple.jpg` or `de:Apfel` is no article of this wiki."""
    match = _NAMESPACE.match(target)
    return match is not None and _is_hidden(match.group(1).strip().lower().replace("_", " "), namespaces)
