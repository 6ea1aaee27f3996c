"""MediaWiki export XML -> raw pages, as a stream. Reads plain, `.bz2` (single and multistream) and `.gz` files."""

import bz2
import gzip
import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError


class DumpError(DeepEdError):
    """The file is not a readable MediaWiki dump."""


@dataclass(frozen=True, slots=True)
class RawPage:
    page_id: int
    title: str
    wikitext: str
    redirect: str | None


@dataclass(slots=True)
class DumpStats:
    """Counts what a pass over a dump leaves out."""

    num_other_namespaces: int = 0
    untitled_page_ids: list[int] = field(default_factory=list)


def open_dump(path: Path) -> io.BufferedIOBase:
    """Open by content, not by file name."""
    try:
        with open(path, "rb") as handle:
            magic = handle.read(3)
    except OSError as error:
        raise DumpError(f"Cannot read dump {path}: {error.strerror}.") from error
    if magic == b"BZh":
        return bz2.open(path)
    if magic[:2] == b"\x1f\x8b":
        return gzip.open(path)
    return open(path, "rb")


def read_dump(path: Path, stats: DumpStats) -> Iterator[RawPage]:
    """Every titled namespace-0 page of the dump, in file order."""
    root: ElementTree.Element | None = None
    num_pages = 0
    with open_dump(path) as source:
        try:
            for event, element in ElementTree.iterparse(source, events=("start", "end")):
                if root is None:
                    root = element
                    if _local_name(element) != "mediawiki":
                        raise DumpError(
                            f"{path} is not a MediaWiki dump: its root is <{_local_name(element)}>, expected <mediawiki>."
                        )
                elif event == "end" and _local_name(element) == "page":
                    num_pages += 1
                    page = _page(element, stats)
                    if page:
                        yield page
                    root.clear()  # else the tree of the whole dump stays in memory
        except ElementTree.ParseError as error:
            raise DumpError(
                f"{path} is not well-formed XML after {num_pages:,} pages: {error}. Is it a complete MediaWiki dump?"
            ) from error
        except (EOFError, OSError) as error:
            raise DumpError(
                f"{path} ends early or is damaged after {num_pages:,} pages: {error}. Fetch the dump again."
            ) from error
    if num_pages == 0:
        raise DumpError(f"{path} contains no pages.")


def _page(element: ElementTree.Element, stats: DumpStats) -> RawPage | None:
    fields = {_local_name(child): child for child in element}
    page_id = int(_text(fields.get("id")) or -1)
    title = normalize_title(_text(fields.get("title")))
    if _text(fields.get("ns")) not in ("", "0"):
        stats.num_other_namespaces += 1
        return None
    if not title:
        stats.untitled_page_ids.append(page_id)
        return None
    redirect = fields["redirect"].get("title") if "redirect" in fields else None
    revision = fields.get("revision")
    wikitext = ""
    if revision is not None:
        wikitext = next((_text(child) for child in revision if _local_name(child) == "text"), "")
    return RawPage(page_id, title, wikitext, normalize_title(redirect) if redirect else None)


def _local_name(element: ElementTree.Element) -> str:
    """Tag without the schema's namespace, which changes with every export version."""
    return element.tag.rpartition("}")[2]


def _text(element: ElementTree.Element | None) -> str:
    return (element.text or "").strip() if element is not None else ""
