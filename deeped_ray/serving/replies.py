"""How large a reply may be: expected from a sample of its mentions before all are linked, and counted while it is written."""

from collections.abc import Iterable, Sequence

from deeped_ray.linking.linker import Linker
from deeped_ray.linking.pace import Pause
from deeped_ray.serving.samples import Sampler
from deeped_ray.serving.turns import TooLargeError
from deeped_ray.serving.work import SECONDS_PER_MENTION, Work
from deeped_ray.types import Document

LARGE_MENTION = 4_000
"""Bytes that hardly any mention takes. If a reply is small enough even so, no sample is taken."""
MB = 1_000_000


class Replies:
    """The limit of the replies to one linker's requests."""

    def __init__(self, linker: Linker, *, max_mb: float) -> None:
        self.sampler, self._max_bytes = Sampler(linker), int(max_mb * MB)

    def check(self, work: Work, documents: Sequence[Document], pause: Pause) -> None:
        """Refuse what would take too much work, or whose reply would be too large."""
        num_mentions = sum(len(document.mentions) for document in documents)
        if work.fixed_bytes + num_mentions * LARGE_MENTION <= self._max_bytes:
            pause(num_mentions * SECONDS_PER_MENTION)
            return
        cost = self.sampler.cost(work, documents, pause)
        if cost.reply_bytes > self._max_bytes:
            raise self._too_large(f"would have about {cost.reply_bytes / MB:.1f} MB")
        pause(cost.seconds)

    def join(self, pieces: Iterable[bytes], pause: Pause) -> bytes:
        """The whole reply. Mentions that are not like those of the sample can still make it too large."""
        found, size = [], 0
        for piece in pieces:
            found.append(piece)
            size += len(piece)
            if size > self._max_bytes:
                raise self._too_large("has more")
            pause()
        return b"".join(found)

    def _too_large(self, how: str) -> TooLargeError:
        return TooLargeError(
            f"The limit of a reply is {self._max_bytes / MB:g} MB; this one {how}. Send fewer mentions at once. In requests"
            " to /link, a smaller `top` and `explain: false` help too."
        )
