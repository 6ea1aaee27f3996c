"""Records that cross module boundaries, and the error that users see."""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

_CREDENTIALS = re.compile(  # one slash where a URI was taken for a path
    r"""(?P<user>:/{1,2})[^\s"']*@|(?P<option>[?&][^\s"'=&]*(?:key|token|secret|password|sig)[^\s"'=&]*=)[^\s"'&]*""",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"((?:access_?key|secret|token|password|signature|credential)\w*[\"']?\s*[:=>]\s*[\"']?)[^\s\"'&,;<]+", re.I
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


def require_at_least(least: int, config: object, *names: str) -> None:
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
    """A surface string in a document; `gold` is its annotated title where known."""

    start: int
    end: int
    gold: str | None = None
    gold_page_id: int | None = None
    """The annotated page's id, where the data set gives it: titles change, ids do not."""
    number: int = -1
    """Place among all annotated mentions of the document, those outside Wikipedia included; -1 if it is not known."""


@dataclass(frozen=True, slots=True)
class Document:
    name: str
    text: str
    mentions: tuple[Mention, ...]

    def surface(self, mention: Mention) -> str:
        return self.text[mention.start : mention.end]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity proposed for a mention, with the parts of its score."""

    title: str
    page_id: int
    url: str
    prior: float
    """p(e|m); 0 for an entity that was found because its name resembles the mention."""
    local: float
    """Psi(e, c): what the attended context words say (section 4)."""
    coherence: float | None
    """Marginal belief after message passing between the mentions (section 5); None for a purely local model."""
    score: float
    """rho: f's combination of the above; the answer is the candidate with the highest."""
    probability: float
    """Softmax over the candidates of the scores, in units of the margin if there was one; not calibrated."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer for one mention: best candidate first; `reason` says why there is none, though there be candidates."""

    start: int
    end: int
    surface: str
    candidates: tuple[Candidate, ...] = ()
    attended: tuple[tuple[str, float], ...] = field(default=())
    """Context words with their attention weights, heaviest first."""
    support: tuple[tuple[int, float], ...] = field(default=())
    """Other mentions, by place, with how far their answers speak for this one rather than for the runner-up, or,
    below 0, against it (Phi, section 5); weightiest first. Nothing where there is but one candidate."""
    reason: str | None = None

    @property
    def best(self) -> Candidate | None:
        return self.candidates[0] if self.candidates and self.reason is None else None

    def at_least(self, threshold: float) -> "Prediction":
        """The same, or no answer where the best candidate is less probable than this."""
        if self.best is None or self.best.probability >= threshold:
            return self
        reason = f"the best candidate has a probability of {self.best.probability:.3f}, below the threshold {threshold}"
        return replace(self, reason=reason)
