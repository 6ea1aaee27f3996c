"""Requests to this machine and this cluster, which no proxy may answer."""

import urllib.request
from http.client import HTTPResponse


def open_url(request: str | urllib.request.Request, *, timeout_s: float) -> HTTPResponse:
    """Open an address directly, even if the environment names a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    reply: HTTPResponse = opener.open(request, timeout=timeout_s)
    return reply
