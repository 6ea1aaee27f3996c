"""Link a text, and print what each name in it means.

python examples/link_text.py [KB] [TEXT]
"""

import sys

import deeped_ray as deeped

TEXT = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."


def main(root: str = "kb/mini", text: str = TEXT) -> None:
    kb = deeped.open(root)
    for mention in kb.link(text):
        if mention.entity is None:
            print(f"{mention.surface}: not linked, since {mention.reason}")
        else:
            print(f"{mention.surface}: {mention.entity.title} ({mention.probability:.2f}) {mention.entity.url}")


if __name__ == "__main__":
    main(*sys.argv[1:])
