"""A company's product list on top of an encyclopedia: the same name means a product in a letter, a city or team elsewhere.

python examples/own_entities.py [KB]

Without a knowledge base, it builds one in a temporary folder: the mini encyclopedia and `products.csv`, in a minute.
"""

import sys
import tempfile
from pathlib import Path

import deeped_ray as deeped
from deeped_ray.mini import MINI_CONFIG, MINI_DUMP

PRODUCTS = Path(__file__).parent / "products.csv"
TEXTS = (
    "The blade of my Montreal broke, and its carbon shaft is splintered. Can I return the stick?",
    "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice.",
    "The steel cage of the Boston rattles, and the padding of the mask is loose.",
)


def build(root: str | Path) -> None:
    dump_and_products = {"dump": [str(MINI_DUMP)], "entities": [str(PRODUCTS)]}
    deeped.build(root, config=MINI_CONFIG, corpus={**MINI_CONFIG["corpus"], **dump_and_products})


def main(root: str) -> None:
    kb = deeped.open(root)
    for text in TEXTS:
        print(text)
        for mention in kb.link(text):
            if mention.entity:
                print(f"    {mention.surface}: {mention.entity.title} ({mention.probability:.2f}) {mention.entity.url}")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            build(folder)
            main(folder)
