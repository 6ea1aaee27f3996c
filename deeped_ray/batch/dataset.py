"""Links the documents of a Ray Data dataset, batch by batch, as a callable class for `map_batches`.

    documents.map_batches(
        LinkBatch,
        fn_constructor_kwargs={"kb": "s3://bucket/kb"},
        batch_format="pyarrow",
        batch_size=128,
        compute=ActorPoolStrategy(min_size=1, max_size=64),
    )

A batch has a column `text`, and may have `spans`, as in `documents`. All its columns stay. Two are added: `mentions` and
`error`, as in `answers`. The module needs no Ray: an actor of Ray Data holds a `LinkBatch`, and so may anything else.
"""

from typing import Any

import pyarrow as pa

from deeped_ray.batch.answers import mentions_type, row_of
from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.documents import COLUMNS, contents_of
from deeped_ray.batch.partition import answers_of, open_linker, text_or_error
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

_ADDED = ("mentions", "error")


class LinkBatch:
    """Arrow tables in, Arrow tables out; the knowledge base is opened once."""

    def __init__(self, kb: str, *, detection: DetectionConfig | None = None, **options: Any) -> None:
        """`options` are those of `answers` in the configuration: model, threshold, top, explain, max_characters."""
        self._config = CorpusLinkingConfig(**options)
        self._linker = open_linker(Location(kb), (), self._config.model, detection or DetectionConfig())
        self._types = {
            "mentions": mentions_type(top=self._config.top, explain=self._config.explain),
            "error": pa.string(),
        }

    def __call__(self, batch: pa.Table) -> pa.Table:
        if "text" not in batch.column_names:
            raise DeepEdError(
                f"Batches have columns {', '.join(batch.column_names)}. LinkBatch expects a column `text`."
            )
        read = batch.select([name for name in batch.column_names if name in COLUMNS])
        contents = [content for piece in read.to_batches() for content in contents_of(piece)]
        texts = [text_or_error(content, self._config.max_characters) for content in contents]
        rows = [row_of(outcome, top=self._config.top) for outcome in answers_of(self._linker, texts, self._config)]
        kept = batch.drop_columns([name for name in _ADDED if name in batch.column_names])
        for name, kind in self._types.items():
            kept = kept.append_column(name, pa.array([row[name] for row in rows], kind))
        return kept
