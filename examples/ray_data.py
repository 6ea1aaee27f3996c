"""Link a Ray Data dataset: documents in Parquet, JSON, a database or a lake, as long as they have a column `text`.

python examples/ray_data.py [KB]
"""

import sys
from pathlib import Path

import ray
from ray.data import ActorPoolStrategy

from deeped_ray.batch import LinkBatch

TEXTS = (
    "Montreal met Toronto in the Stanley Cup.",
    "Boston lead the National Hockey League after scoring on the ice.",
    "Queen recorded the album in Montreal.",
)


def main(root: str = "kb/mini") -> None:
    documents = ray.data.from_items([{"source": f"note {number}", "text": text} for number, text in enumerate(TEXTS)])
    linked = documents.map_batches(
        LinkBatch,
        fn_constructor_kwargs={"kb": root if "://" in root else str(Path(root).resolve()), "threshold": 0.3},
        batch_format="pyarrow",
        batch_size=128,
        compute=ActorPoolStrategy(size=1),  # one actor for each core that shall link
    )
    for row in linked.take_all():
        names = [f"{mention['surface']} => {mention['title']}" for mention in row["mentions"] if mention["title"]]
        print(f"{row['source']}: {'; '.join(names)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
