"""A real S3 API on loopback, which can be told to fail."""

import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line a request otherwise
BUCKET = "knowledge"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "not-a-real-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class S3:
    """`moto`'s server behind a door that lets a share of the requests fail."""

    def __init__(self) -> None:
        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._fail_share, self._status = 0.0, 503
        self.num_failed = 0
        self.num_requests = 0
        self._random = random.Random(0)

    def _serve(self, environ: Any, start_response: Any) -> Any:
        self.num_requests += 1
        is_rays = "train-" in environ["PATH_INFO"] + environ["QUERY_STRING"]  # checkpoints: Ray does not try again
        if not is_rays and self._random.random() < self._fail_share:
            self.num_failed += 1
            Request(environ).get_data()
            return Response(status=self._status)(environ, start_response)
        return self._app(environ, start_response)

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}

    @contextlib.contextmanager
    def running(self) -> Iterator["S3"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()

    def make_bucket(self) -> None:
        """There may be one already; or no more, since moto forgets everything when any other test has used it."""
        client = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", **_boto(CREDENTIALS))
        client.create_bucket(Bucket=BUCKET)

    @contextlib.contextmanager
    def failing(self, share: float, *, status: int = 503) -> Iterator[None]:
        """Some requests fail."""
        self._fail_share, self._status = share, status
        try:
            yield
        finally:
            self._fail_share = 0.0

    def gone(self) -> contextlib.AbstractContextManager[None]:
        """All requests fail; not with 503, at which the AWS SDK tries again for 6 s before we hear of it."""
        return self.failing(1.0, status=400)


def _boto(environment: dict[str, str]) -> dict[str, str]:
    return {
        "aws_access_key_id": environment["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
    }


def prefix(name: str) -> str:
    return f"s3://{BUCKET}/{name}-{os.urandom(4).hex()}"


def failing_twice(message: str) -> Callable[[Any, str], str]:
    """For `Location._try`: pyarrow has tried by itself before it lets an error through, so that 503s alone do not do."""
    errors = [OSError(message), OSError(message)]

    def operation(*_: Any) -> str:
        if errors:
            raise errors.pop()
        return "done"

    return operation
