"""How large a reply may be: expected from a sample of its mentions before all are linked, and counted while it is written."""

import random
from collections.abc import Iterable, Sequence

from deeped_ray.linking.linker import Linker
from deeped_ray.linking.pace import Pause
from deeped_ray.serving.turns import TooLargeError
from deeped_ray.serving.work import Work
from deeped_ray.types import Document, Mention

SAMPLE = 100
"""Mentions that are linked first, to see how large they become: about 40 ms of work."""
LARGE_MENTION = 4_000
"""Bytes that hardly any mention takes. If a reply is small enough even so, no sample is taken."""
AROUND = 400
"""Characters on each side of a mention that the sample has, for its context."""
MB = 1_000_000


class Replies:
    """The limit of the replies to one linker's requests."""

    def __init__(self, linker: Linker, *, max_mb: float) -> None:
        self._linker, self._max_bytes = linker, int(max_mb * MB)

    def check(self, work: Work, documents: Sequence[Document], pause: Pause) -> None:
        """Refuse work whose reply would be too large."""
        num_mentions = sum(len(document.mentions) for document in documents)
        if work.fixed_bytes + num_mentions * LARGE_MENTION <= self._max_bytes:
            return
        if (size := self.expected_bytes(work, documents, pause)) > self._max_bytes:
            raise self._too_large(f"would have about {size / MB:.1f} MB")

    def expected_bytes(self, work: Work, documents: Sequence[Document], pause: Pause) -> int:
        mentions = [(i, mention) for i, document in enumerate(documents) for mention in document.mentions]
        # at random: in a table or a list, every hundredth mention may be of one kind
        sample = random.Random(0).sample(mentions, min(SAMPLE, len(mentions)))
        excerpt = _excerpt([(documents[i].text, mention) for i, mention in sample])
        explain = any(text.explain for text in work.texts)
        (linked,) = self._linker.link_batch([excerpt], explain=explain, pause=pause)
        asked = [work.texts[i] for i, _ in sample]
        sizes = [
            work.mention_bytes(text, each.at_least(text.threshold)) for text, each in zip(asked, linked, strict=True)
        ]
        return work.fixed_bytes + sum(sizes) * len(mentions) // max(len(sample), 1)

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


def _excerpt(sample: Sequence[tuple[str, Mention]]) -> Document:
    """A text with the surroundings of each mention, one after the other."""
    pieces, mentions, end = [], [], 0
    for text, mention in sample:
        first = max(0, mention.start - AROUND)
        pieces.append(text[first : mention.end + AROUND])
        mentions.append(Mention(end + mention.start - first, end + mention.end - first))
        end += len(pieces[-1]) + 1
    return Document("", "\n".join(pieces), tuple(mentions))
