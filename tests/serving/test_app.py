"""What a replica does beside answering."""

import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from deeped_ray.serving.app import _log_requests_once


@pytest.fixture
def stderr() -> Iterator[StringIO]:
    """What Serve's logger writes to stderr."""
    logger, handler = logging.getLogger("ray.serve"), logging.StreamHandler(StringIO())
    logger.addHandler(handler)
    yield handler.stream
    logger.removeHandler(handler)


def test_requests_are_not_logged_to_stderr_too(stderr: StringIO) -> None:
    _log_requests_once()
    logger = logging.getLogger("ray.serve")
    logger.error("GET / 200", extra={"serve_access_log": True})
    logger.error("a replica has no memory left")
    assert stderr.getvalue() == "a replica has no memory left\n"
