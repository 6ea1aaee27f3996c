"""Records that cross module boundaries, and the error that users see."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

LinkerKind = Literal["prior", "local", "global"]
Mentions = Literal["names", "all"]
"""What counts as a mention in raw text: names, as in news, or all that Wikipedia would link."""
"""The prior p(e|m) alone, the local model of section 4, or the global model of section 5."""
_CREDENTIALS = re.compile(  # one slash where a URI was taken for a path
    r"""(?P<user>:/{1,2})[^\s"']*@|(?P<option>[?&][^\s"'=&]*(?:key|token|secret|password|sig)[^\s"'=&]*=)[^\s"'&]*""",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"((?:access_?key|secret|token(?!s)|password|signature|credential)\w*[\"']?\s*[:=>]\s*[\"']?)[^\s\"'&,;<]+", re.I
)


def redacted(text: str) -> str:
    """The text without credentials: `s3://user:password@host` as `s3://***@host`, `token=x` as `token=***`.

    Nobody knows what a storage service puts into its error messages, so everything we print goes through here.
    """
    text = _CREDENTIALS.sub(lambda found: f"{found['user']}***@" if found["user"] else f"{found['option']}***", text)
    return _SECRET.sub(r"\1***", text)


class DeepEdError(Exception):
    """A user's mistake or a broken input: reported as one line that names the fix, never as a traceback."""

    def __str__(self) -> str:
        return redacted(super().__str__())


def require_at_least(least: int | float, config: object, *names: str) -> None:
    """Refuse a setting that is too small, by its name."""
    for name in names:
        if getattr(config, name) < least:
            raise DeepEdError(f"`{name}` must be at least {least}, not {getattr(config, name)}.")


class Link(NamedTuple):  # a tuple is made in half the time of a frozen dataclass, and a dump has hundreds of millions
    """A hyperlink in a page's plain text; offsets are characters, end exclusive."""

    start: int
    end: int
    target: str
    """Title as normalised by `text.normalize_title`, before redirects."""


@dataclass(frozen=True, slots=True)
class Page:
    """One namespace-0 page of a dump, parsed."""

    page_id: int
    title: str
    text: str
    links: tuple[Link, ...] = ()
    redirect: str | None = None
    is_disambiguation: bool = False
    is_person: bool = False


@dataclass(frozen=True, slots=True)
class Mention:
    """A piece of a document's text that names something; `gold` is the title people annotated it with, if they did."""

    start: int
    end: int
    gold: str | None = None
    gold_page_id: int | None = None
    """Page id of the annotated entity, if the data set gives it. Titles change, ids do not."""
    number: int = -1
    """Position among all annotated mentions of the document, including those outside Wikipedia; -1 if not known."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text with the mentions to link."""

    name: str
    text: str
    mentions: tuple[Mention, ...]

    def surface(self, mention: Mention) -> str:
        return self.text[mention.start : mention.end]


def check_spans(text: str, spans: Sequence[tuple[int, int]]) -> None:
    """Refuse spans that are outside the text, empty or overlapping."""
    for start, end in spans:
        if 0 <= end <= start <= len(text):
            raise DeepEdError(f"Span {start}:{end} is empty. The end of a span is exclusive.")
        if not 0 <= start < end <= len(text):
            raise DeepEdError(f"Span {start}:{end} does not lie within the text, which has {len(text)} characters.")
    ordered = sorted(spans)
    for (start, end), (next_start, next_end) in itertools.pairwise(ordered):
        if next_start < end:
            raise DeepEdError(f"Spans {start}:{end} and {next_start}:{next_end} overlap.")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity that a mention may mean, with the parts of its score."""

    title: str
    page_id: int
    url: str
    prior: float
    """p(e|m); 0 for an entity that another source has found."""
    local: float
    """Psi(e, c): how well the entity fits the attended context words (section 4)."""
    coherence: float | None
    """Belief after message passing between the mentions (section 5); None for the local model and the prior."""
    score: float
    """rho: f combines the values above. The candidate with the highest score is the answer."""
    probability: float
    """How likely it is right: of all answers with a probability of 0.8, about four in five are. Those of all candidates
    and `none_probability` add up to 1."""
    source: str = "prior"
    """Where the candidate came from: prior, name (and how it matches), longer name, document or context."""
    wikidata: str | None = None
    """Its Wikidata id, such as Q64; None if it has none, or if the knowledge base has no ids."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer for one mention. Best candidate first. If no candidate is good enough, `reason` says why."""

    start: int
    end: int
    surface: str
    candidates: tuple[Candidate, ...] = ()
    attended: tuple[tuple[str, float], ...] = field(default=())
    """Context words with their attention weights, heaviest first."""
    support: tuple[tuple[int, float], ...] = field(default=())
    """How much other mentions, given by position, favour this answer over the second-best candidate (Phi, section 5).
    Negative: they favour the second-best. Strongest first. Empty if there is only one candidate."""
    reason: str | None = None
    none_probability: float = 0.0
    """How likely it is that the mention means none of the candidates: something that the knowledge base lacks."""

    @property
    def entity(self) -> Candidate | None:
        """The best candidate; None if the mention is not linked."""
        return self.candidates[0] if self.candidates and self.reason is None else None

    @property
    def probability(self) -> float:
        """Probability of the entity; 0 if the mention is not linked."""
        return self.entity.probability if self.entity else 0.0

    def at_least(self, threshold: float) -> "Prediction":
        """The same prediction, or one without an entity if its probability is below the threshold."""
        if self.entity is None or self.probability >= threshold:
            return self
        reason = f"the best candidate has a probability of {self.probability:.3f}, below the threshold {threshold}"
        return replace(self, reason=reason)

    def _repr_html_(self) -> str:
        from deeped_ray import Predictions

        return Predictions([self])._repr_html_()


# -- what look-ups answer


class UnknownEntityError(DeepEdError):
    """No entity has this title or id."""


@dataclass(frozen=True, slots=True)
class Entity:
    title: str
    page_id: int
    url: str
    wikidata: str | None
    """Such as Q64; None if there is none, or if the knowledge base has no ids."""


@dataclass(frozen=True, slots=True)
class EntityDetails(Entity):
    """An entity with what was counted in the dump."""

    is_person: bool
    num_links: int
    """Links that lead here."""
    num_words: int
    """Words of the page."""


@dataclass(frozen=True, slots=True)
class RelatedEntity(Entity):
    similarity: float
    """Cosine."""


@dataclass(frozen=True, slots=True)
class NamedEntity(Entity):
    resemblance: float
    """How much one of its names resembles the given one: from 0 to 1."""
    match: str
    """How: equals, words, initials, inflection, typo or part."""


@dataclass(frozen=True, slots=True)
class Sense(Entity):
    """One of the entities that a name can mean."""

    prior: float
    """p(e|m)."""
    count: float
    """The links, titles and counts of further sources behind the prior."""


@dataclass(frozen=True, slots=True)
class EntityName:
    """A name that can mean an entity."""

    name: str
    prior: float
    """p(e|m): how often the name means this entity."""
    count: float
    """How often it does, in links, titles and counts of further sources."""


@dataclass(frozen=True, slots=True)
class Name:
    mention: str
    """The name as the mention table has it; empty if the table does not know it."""
    rule: str
    """How it was found: as written, in other case, or without punctuation."""
    candidates: tuple[Sense, ...]
