"""What can go wrong between a client and its server, each as a kind of its own."""

from deeped_ray.types import DeepEdError


class ClientError(DeepEdError):
    """The server did not give an answer."""


class ServerAwayError(ClientError):
    """The server cannot be reached, or has been busy for longer than we wait."""


class ServerSlowError(ClientError):
    """The server took too long."""


class ServerVersionError(ClientError):
    """Something answers, but it is no deeped-ray server, or one whose answers this version does not understand."""


class TokenError(ClientError):
    """The server wants another token, or any."""


class RefusedError(ClientError):
    """The server refuses the request, and says why."""
