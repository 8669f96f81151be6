"""The stream of changes of the store."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ._cache import jitter
from ._errors import CredentialError, Forbidden, Invalid, Unavailable
from ._transport import BROKEN, lost, refusal

if TYPE_CHECKING:
    from ._client import Client

# Maximum size of one event.
EVENT_MAX = 64 << 10
# Timeout of a silent stream, in seconds. The store sends something every 15 s.
SILENCE_MAX = 45.0
# First delay before the stream is opened again; doubled up to the maximum.
AGAIN_MIN, AGAIN_MAX = 0.5, 30.0
# Delay if the store does not have the stream.
UNKNOWN_AGAIN = 600.0
# A stream that lasted this long counts as successful.
GOOD_AFTER = 10.0
# After a gap, clients spread their requests over this time.
GAP_SPREAD = 2.0


class Event(NamedTuple):
    """A server-sent event (WHATWG HTML section 9.2)."""

    id: str
    kind: str
    data: str


def events(stream: BinaryIO | http.client.HTTPResponse) -> Iterator[Event]:
    """Parses events until the stream ends."""
    id = kind = data = ""
    size = 0
    while True:
        line = stream.readline(EVENT_MAX + 1)
        size += len(line)
        if size > EVENT_MAX:
            raise Unavailable(f"an event has more than {EVENT_MAX} bytes")
        if not line.endswith(b"\n"):
            return
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            if id or kind or data:
                yield Event(id, kind, data)
            id = kind = data = ""
            size = 0
            continue
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            id = value
        elif field == "event":
            kind = value
        elif field == "data":
            data += value


class Follower:
    """Follows the stream of changes in a thread, over all its connections, until the client is closed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # The ID of the last event.
        self._last = ""
        # The stream has begun before; this connection continues where the previous one ended.
        self._begun = self._resumed = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        threading.Thread(target=self._run, name="bulla-credentials-events", daemon=True).start()

    def stop(self) -> None:
        """Ends the connection, after the client is marked as closed."""
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def forked(self) -> None:
        """Closes the copy of the socket in a forked process, without a word on the connection."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.close(self._socket.detach())

    def _run(self) -> None:
        pause, closed = AGAIN_MIN, self._client._transport.closed
        while not closed.is_set():
            began = time.monotonic()
            ended: Exception | None = None
            try:
                self._connect()
            except CredentialError as error:
                ended = error
            except BROKEN as error:
                ended = lost(error)
            with self._client._lock:
                self._client._cache.unfollow()
            if isinstance(ended, Forbidden):
                self._client._drop()
            if time.monotonic() - began > GOOD_AFTER:
                pause = AGAIN_MIN
            unknown = isinstance(ended, CredentialError) and ended.status == 404
            closed.wait(jitter(UNKNOWN_AGAIN if unknown else pause, 0.5))
            pause = min(pause * 2, AGAIN_MAX)

    def _connect(self) -> None:
        """Reads the stream until it ends."""
        transport = self._client._transport
        connection = transport.connect(transport.timeout)
        try:
            connection.connect()
            sock = connection.sock
            with self._lock:
                self._socket = sock
            until = time.monotonic() + transport.timeout
            response = transport.send(connection, "GET", "/api/v1/events", None, until, self._last)
            if response.status // 100 != 2:
                raise refusal(response.status, response.read(64 << 10))
            sock.settimeout(SILENCE_MAX)
            for event in events(response):
                if transport.closed.is_set():
                    return
                self._heard(event)
        finally:
            with self._lock:
                self._socket = None
            connection.close()

    def _heard(self, event: Event) -> None:
        client = self._client
        self._last = event.id or self._last
        if event.kind == "ready":
            self._resumed = _flag(event.data, "resumed", False)
            if not self._resumed:
                # At the first stream no other client lost its stream at the same time, so no delay is needed.
                client._gap(jitter(GAP_SPREAD, 1.0) if self._begun else 0.0)
            self._begun = True
        elif event.kind == "lagged":
            client._gap(jitter(GAP_SPREAD, 1.0))
            with client._lock:
                if client._cache.following():
                    client._cache.follow(False)
        elif event.kind == "access":
            if _flag(event.data, "changed", True):
                client._count_change()
                client._drop()
                client._notify(None)
            with client._lock:
                if not client._cache.following():
                    client._cache.follow(self._resumed)
        elif event.kind.startswith("credential."):
            client._count_change()
            try:
                name = normal(json.loads(event.data)["name"])
            except (ValueError, KeyError, TypeError, AttributeError):
                client._gap(0.0)
                return
            client._changed(name)


def _flag(data: str, field: str, otherwise: bool) -> bool:
    try:
        return bool(json.loads(data).get(field, False))
    except (ValueError, AttributeError):
        return otherwise


# Maximum length of a name, as in the store.
NAME_MAX = 1024
_FOLD: dict[int, int] = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def normal(name: str) -> str:
    """A name as the cache has it: in lower case, with a leading slash. The store checks all other rules."""
    bare = name.removeprefix("/")
    if not bare or len(bare) >= NAME_MAX:
        raise Invalid(f"a name must have 1 to {NAME_MAX} characters", name=name[:100])
    return "/" + bare.translate(_FOLD)


OnChange = Callable[["str | None"], None]
