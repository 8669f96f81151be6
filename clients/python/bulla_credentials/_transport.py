"""Requests to the store: few connections, deadlines, retries within a budget."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from ._cache import jitter
from ._errors import CredentialError, Forbidden, Invalid, Refused, Unavailable
from ._values import Secret

# Maximum size of a response. A batch of the largest values is split in halves.
RESPONSE_MAX = 64 << 20
# Maximum size shown of an error that is not from the store but, for example, from a proxy.
MESSAGE_MAX = 300
# Maximum attempts of a request. Each has half of the timeout.
ATTEMPTS_MAX = 4
ATTEMPT_PARTS = 2
# Maximum delay before the second attempt; doubled before each further one. All times are seconds.
BACKOFF = 0.1
# How long no request is sent after a failure; doubled up to the maximum.
PAUSE_MIN, PAUSE_MAX = 0.25, 5.0
# Maximum retries in a burst, and what each request adds. So a failing store does not get a multiple of the usual load.
RETRIES_MAX, RETRIES_EARNED = 10.0, 0.1
# Idle connections.
IDLE_MAX = 2

# The store or its database is unavailable, its disk is full, or there are too many requests. Other statuses, including 500, depend on
# the request.
PASSING = {408, 429, 502, 503, 504, 507}

BROKEN = (OSError, http.client.HTTPException, ValueError)


class Transport:
    """Sends requests to the store."""

    def __init__(self, url: str, token: Callable[[], Secret] | Secret | None, context: ssl.SSLContext, timeout: float) -> None:
        parts = urlsplit(url)
        plain = parts.username or parts.password or parts.query or parts.path not in ("", "/")
        try:
            port = parts.port or 443
        except ValueError:
            port = 0
        # The token is sent with each request, so it must never be sent unencrypted.
        if parts.scheme != "https" or not parts.hostname or plain or not port:
            raise Invalid(f"the URL {url!r} is not https://HOST:PORT")
        self.address = (parts.hostname, port)
        self.token, self.context, self.timeout = token, context, timeout
        self.requests = self.retries = 0
        self._why: CredentialError | None = None
        self._pause = self._until = 0.0
        self.closed = threading.Event()
        self._start()

    def forked(self) -> None:
        """Continues in a forked process: the connections belong to the parent, and another thread may have held a lock."""
        closed, self.closed = self.closed.is_set(), threading.Event()
        if closed:
            self.closed.set()
        for connection in self._idle:
            # Only the copy of the descriptor: nothing is sent.
            connection.close()
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPSConnection] = []
        self._budget = RETRIES_MAX

    def close(self) -> None:
        self.closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def away(self) -> tuple[CredentialError | None, bool]:
        """Why the store counts as unavailable, if it does, and whether a new attempt is due."""
        with self._lock:
            return self._why, time.monotonic() >= self._until

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of a successful response. Temporary errors are retried, within the timeout and the budget."""
        until = time.monotonic() + self.timeout
        with self._lock:
            self._budget = min(self._budget + RETRIES_EARNED, RETRIES_MAX)
        attempt = 1
        while True:
            try:
                content = self._attempt(method, path, body, min(until, time.monotonic() + self.timeout / ATTEMPT_PARTS))
            except Unavailable as error:
                pause = jitter(BACKOFF * 2 ** (attempt - 1), 1.0)
                late = time.monotonic() + pause >= until
                if attempt == ATTEMPTS_MAX or late or self.closed.is_set() or not self._retry():
                    self._failed(error)
                    raise
                self.closed.wait(pause)
                attempt += 1
                continue
            except CredentialError:
                self._over()
                raise
            self._over()
            return content

    def _retry(self) -> bool:
        with self._lock:
            if self._budget < 1:
                return False
            self._budget -= 1
            self.retries += 1
            return True

    def _failed(self, why: CredentialError) -> None:
        with self._lock:
            self._pause = min(max(self._pause * 2, PAUSE_MIN), PAUSE_MAX)
            self._why, self._until = why, time.monotonic() + jitter(self._pause, 0.5)

    def _over(self) -> None:
        with self._lock:
            self._why, self._pause = None, 0.0

    def _attempt(self, method: str, path: str, body: bytes | None, until: float) -> bytes:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        reused = connection is not None
        connection = connection or self.connect(until - time.monotonic())
        try:
            try:
                response = self.send(connection, method, path, body, until)
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                if not reused:
                    raise
                # The store closed the idle connection.
                connection.close()
                connection = self.connect(until - time.monotonic())
                response = self.send(connection, method, path, body, until)
            content = _read(connection, response, until)
        except BROKEN as error:
            connection.close()
            raise lost(error) from None
        except CredentialError:
            connection.close()
            raise
        with self._lock:
            if not response.will_close and len(self._idle) < IDLE_MAX and not self.closed.is_set():
                self._idle.append(connection)
                connection = None
        if connection is not None:
            connection.close()
        if response.status // 100 != 2:
            raise refusal(response.status, content)
        return content

    def connect(self, timeout: float) -> http.client.HTTPSConnection:
        """A new connection, which connects with its first request."""
        return http.client.HTTPSConnection(*self.address, timeout=max(timeout, 0.001), context=self.context)

    def send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: bytes | None,
        until: float,
        last: str = "",
    ) -> http.client.HTTPResponse:
        """Sends a request and returns the response without its body."""
        headers = {"User-Agent": "bulla-client-python"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if last:
            headers["Last-Event-ID"] = last
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with self._lock:
            self.requests += 1
        _limit(connection, until)
        connection.request(method, path, body, headers)
        _limit(connection, until)
        return connection.getresponse()

    def _token(self) -> str:
        if not callable(self.token):
            return self.token.reveal() if self.token else ""
        try:
            return self.token().reveal().strip()
        except Exception as error:
            raise Unavailable(f"no token: {error}") from error


def _limit(connection: http.client.HTTPConnection, until: float) -> None:
    """Limits the next operation of the connection's socket, if it is connected."""
    if connection.sock is not None:
        connection.sock.settimeout(max(until - time.monotonic(), 0.001))


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse, until: float) -> bytes:
    content = bytearray()
    while True:
        _limit(connection, until)
        chunk = response.read(64 << 10)
        if not chunk:
            return bytes(content)
        content += chunk
        if len(content) > RESPONSE_MAX:
            raise Refused(f"the response has more than {RESPONSE_MAX} bytes", status=413)
        if time.monotonic() > until:
            raise TimeoutError("timed out")


def lost(error: Exception) -> Unavailable:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return Unavailable("no response before the timeout")
    return Unavailable(str(error) or type(error).__name__)


def refusal(status: int, content: bytes) -> CredentialError:
    """The error of a response."""
    message = content[:MESSAGE_MAX].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        answer = json.loads(content)
        message = str(answer.get("error_description") or answer["error"])
    kind: type[CredentialError] = Refused
    if status in (401, 403):
        kind = Forbidden
    elif status in PASSING:
        kind = Unavailable
    return kind(message, status=status)

