"""The README's curl examples, sent as they are printed."""

import itertools
import re
import shlex
from pathlib import Path

import httpx
import pytest

README = (Path(__file__).parent.parent.parent / "README.md").read_text()
SERVER = "http://127.0.0.1:8000"
EXAMPLES = re.findall(r"^curl -s (.*?)(?=^curl|^```)", README, re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_readme_works_as_printed(client: httpx.Client, example: str) -> None:
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
