"""The curl examples of the README and the docs, sent as they are printed."""

import itertools
import re
import shlex
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent.parent
SERVER = "http://127.0.0.1:8000"
PAGES = [path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
# an example goes on as long as lines are indented
EXAMPLES = [found for page in PAGES for found in re.findall(r"^curl -s (.*?)(?=^\S)", page, re.MULTILINE | re.DOTALL)]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("example", sorted(set(EXAMPLES)))
def test_an_example_works_as_printed(client: httpx.Client, example: str) -> None:
    words = shlex.split(example.replace("\\\n", " "), comments=True)
    url = next(word for word in words if word.startswith(SERVER)).removeprefix(SERVER)
    options = dict(itertools.pairwise(words))
    if "-d" in options:
        name, _, value = options["-H"].partition(": ")
        reply = client.post(url, content=options["-d"], headers={name: value})
    else:
        reply = client.get(url)
    assert reply.status_code == 200, reply.text
    assert len(reply.content) > 50
