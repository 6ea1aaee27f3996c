"""WikiExtractor's output, made with `--links`: `<doc id title>`, plain text with `<a href="Target">anchor</a>`, `</doc>`.

The markup is gone, so namespaces and disambiguation pages are known by their names alone, persons by their first
words, and there are no redirects.
"""

import html
import io
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from deeped_ray.corpus.persons import opens_with_life
from deeped_ray.corpus.wikidump import DumpShard, DumpStats, RawPage, parse_id, plain_range
from deeped_ray.corpus.wikitext import is_disambiguation, is_in_other_namespace
from deeped_ray.storage.compressed import READ_ERRORS, open_decompressed
from deeped_ray.text import normalize_title
from deeped_ray.types import Link, Page

_DOC = b"<doc "
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_ANCHOR = re.compile(r'<a href="([^"]*)">((?:(?!<a ).)*?)</a>')


def read_docs(shard: DumpShard, stats: DumpStats) -> Iterator[Page]:
    """The titled pages of a shard, in file order."""
    if shard.kind == "plain":
        for offset, content in plain_range(shard, _DOC):
            yield from _pages(io.BytesIO(content), f"{shard.path.name} at byte {offset:,}", stats)
        return
    try:
        with open_decompressed(shard.path) as source:
            yield from _pages(source, shard.path.name, stats)
    except READ_ERRORS as error:
        stats.damage.append(f"{shard.path.name}: {error}")


def _pages(lines: Iterable[bytes], where: str, stats: DumpStats) -> Iterator[Page]:
    head: dict[str, str] | None = None
    body: list[str] = []
    for raw in lines:
        if raw.startswith(_DOC):
            if head is not None:
                stats.damage.append(f"{where}: page {head.get('id')} without an end")
            head, body = dict(_ATTRIBUTE.findall(raw.decode("utf-8", "replace"))), []
        elif raw.startswith(b"</doc>") and head is not None:
            page = _page(head, body, stats)
            head = None
            if page:
                yield page
        else:
            body.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
    if head is not None:
        stats.damage.append(f"{where}: page {head.get('id')} without an end")


def _page(head: dict[str, str], body: list[str], stats: DumpStats) -> Page | None:
    page_id = parse_id(head.get("id", ""))
    title = normalize_title(html.unescape(head.get("title", "")))
    if not title:
        stats.untitled_page_ids.append(page_id)
        return None
    if body and normalize_title(html.unescape(body[0])) == title:
        body = body[1:]
    text, links = parse_body("\n".join(body).strip())
    links = [link for link in links if link.target != title]
    if is_disambiguation(RawPage(page_id, title, "", None)):
        return Page(page_id, title, text, tuple(links), is_disambiguation=True)
    return Page(page_id, title, text, tuple(links), is_person=opens_with_life(title, text))


def parse_body(body: str) -> tuple[str, list[Link]]:
    """Plain text and its links; an anchor that is not closed stays as it is written."""
    pieces: list[str] = []
    links: list[Link] = []
    length = position = 0
    for match in _ANCHOR.finditer(body):
        before, anchor = html.unescape(body[position : match.start()]), html.unescape(match[2])
        start = length + len(before)
        target = unquote(html.unescape(match[1])).partition("#")[0]
        if target and anchor.strip() and not is_in_other_namespace(target):
            links.append(Link(start, start + len(anchor), normalize_title(target)))
        pieces += [before, anchor]
        length, position = start + len(anchor), match.end()
    return "".join([*pieces, html.unescape(body[position:])]), links
