"""The client of the credential store."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from ._cache import Age, Cache, Limits
from ._errors import CredentialError, Forbidden, Invalid, NotFound, Refused, Unavailable
from ._events import Follower, OnChange, normal
from ._transport import Transport
from ._values import Credential, Secret

# Maximum names per request: half of the store's, so that a response with long values is not too large.
NAMES_MAX = 500
# Maximum concurrent requests.
AT_ONCE = 2
# Maximum names that wait for a request.
FLIGHTS_MAX = 10_000
# Seconds for which a store without the route for batches gets single requests.
SINGLE_FOR = 600.0

Result = tuple["Credential | None", "CredentialError | None"]


@dataclass
class Stats:
    """Counters of a client."""

    #: Requests sent to the store, with retries and the stream of changes.
    requests: int = 0
    #: Retries among `requests`.
    retries: int = 0
    #: Lookups that a fresh entry answered.
    hits: int = 0
    #: Lookups that a stale entry answered, because it is being read again or the store is unreachable.
    stale_hits: int = 0
    #: Lookups that waited for a request, which they may have shared.
    misses: int = 0
    #: Changes received.
    changes: int = 0
    #: Gaps in the stream of changes, with its first start.
    gaps: int = 0


class Flight:
    """A lookup of one name in the store, which all callers of the name share."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: The time of the request.
        self.asked = 0.0
        #: A caller waits; otherwise it refreshes the cache.
        self.wanted = False
        self.future: Future[Result] = Future()
        # No caller can cancel it for the others.
        self.future.set_running_or_notify_cancel()


@dataclass
class Lookup:
    """The lookup of one name by one caller: a result, or a flight to wait for."""

    #: The name as the caller gave it, and as the cache has it.
    asked: str
    name: str
    credential: Credential | None = None
    error: CredentialError | None = None
    flight: Flight | None = None
    #: A cached entry is served if the store is unavailable.
    fallback: bool = False

    def result(self) -> Credential:
        if self.error is not None:
            raise self.error.named(self.name)
        if self.credential is None:
            raise NotFound("does not exist, or this client may not read it", name=self.name)
        return self.credential


class Client:
    """A client of the credential store. Any number of threads may use it. It does not connect before the first lookup.
    `close` ends its background threads, as does the end of a `with` block.

    `url`: `https://HOST:PORT`. `token`: an API token, or a function that returns the token for each request, for tokens that are
    renewed. `ca_file`: trusted certificates, PEM (default: the system's); `ssl_context` instead for a client certificate.

    Times are seconds. `ttl`: how long a value is fresh while the store does not report changes, minus a random fifth;
    `negative_ttl`: the same for a missing name; `revalidate`: how long afterwards it is still served while it is read again;
    `max_stale`: how long it is served while the store is unreachable; `timeout`: of one lookup with all retries. `max_entries` and
    `max_bytes` limit the cache. `events`: whether to follow the stream of changes.

    `on_change` is called in a background thread after a credential has changed, with its name in lower case, or with None if any
    credential may have changed. The calls are one at a time. It may call `get`, which returns the new value.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Secret | Callable[[], str | Secret] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        ttl: float = 60.0,
        negative_ttl: float = 15.0,
        revalidate: float = 30.0,
        max_stale: float = 3600.0,
        max_entries: int = 10_000,
        max_bytes: int = 64 << 20,
        timeout: float = 10.0,
        events: bool = True,
        on_change: OnChange | None = None,
    ) -> None:
        if ssl_context is not None and ca_file is not None:
            raise Invalid("give ca_file or ssl_context, not both")
        if min(ttl, negative_ttl, max_stale, timeout, max_entries, max_bytes) <= 0 or revalidate < 0:
            raise Invalid("times and sizes must be greater than 0")
        context = ssl_context or ssl.create_default_context(cafile=ca_file)
        self._transport = Transport(url, _token(token), context, timeout)
        self._timeout, self._events, self._on_change = timeout, events, on_change
        self._cache = Cache(Limits(ttl, negative_ttl, revalidate, max_stale, max_entries, max_bytes))
        self._stats = Stats()
        # The store has no route for batches until this time.
        self._single = 0.0
        # Held during `on_change`.
        self._notifying = threading.Lock()
        # Protects the cache, the counters and the fields below.
        self._lock = threading.Lock()
        # The lookup in progress of each name. A change of the name removes it: its result is not cached, and later callers start
        # another one.
        self._flights: dict[str, Flight] = {}
        self._queue: deque[Flight] = deque()
        # Workers that send the queue, and among them those that have not taken a batch yet.
        self._workers = self._starting = 0
        self._follower: Follower | None = None
        _clients.add(self)

    def get(self, name: str, *, timeout: float | None = None) -> Credential:
        """The current version of a credential. `timeout` ends only this wait: the request continues for other callers."""
        return self._await(self._begin([name])[0], self._until(timeout))

    def get_many(
        self, names: Iterable[str], *, missing_ok: bool = False, timeout: float | None = None
    ) -> dict[str, Credential]:
        """The current versions of credentials by the names as given, in as few requests as possible. Raises the first error;
        with `missing_ok` names without a credential are left out."""
        lookups, until = self._begin(names), self._until(timeout)
        found = {}
        for lookup in lookups:
            try:
                found[lookup.asked] = self._await(lookup, until)
            except NotFound:
                if not missing_ok:
                    raise
        return found

    def doubt(self, name: str) -> None:
        """Marks the cached value of a name as doubtful, because a server rejected it. The next lookup reads it from the store; while
        the store is unreachable the cached value is served."""
        key = normal(name)
        with self._lock:
            self._flights.pop(key, None)
            found, _ = self._cache.get(key)
            if found is not None:
                found.doubted = True

    def stats(self) -> Stats:
        """The counters."""
        with self._lock:
            return replace(self._stats, requests=self._transport.requests, retries=self._transport.retries)

    def close(self) -> None:
        """Ends the stream of changes, and empties the cache. Later lookups raise `Unavailable`."""
        self._transport.close()
        with self._lock:
            self._flights.clear()
            self._cache.clear()
        if self._follower is not None:
            self._follower.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        host, port = self._transport.address
        return f"<Client https://{host}:{port}>"

    def _until(self, timeout: float | None) -> float:
        return time.monotonic() + (self._timeout if timeout is None else min(timeout, self._timeout))

    def _begin(self, names: Iterable[str]) -> list[Lookup]:
        """Looks into the cache, and begins requests or joins them where needed."""
        with self._lock:
            if self._follower is None and self._events and not self._transport.closed.is_set():
                self._follower = Follower(self)
            lookups = [self._begin_one(name) for name in names]
            self._dispatch()
        return lookups

    def _begin_one(self, asked: str) -> Lookup:
        try:
            lookup = Lookup(asked, normal(asked))
        except Invalid as error:
            return Lookup(asked, error.name, error=error)
        if self._transport.closed.is_set():
            lookup.error = Unavailable("the client is closed")
            return lookup
        found, age = self._cache.get(lookup.name)
        if found is not None:
            lookup.credential = found.credential
        away, due = self._transport.away()
        if age is Age.FRESH:
            self._stats.hits += 1
        elif found is not None and away is not None and not due:
            self._stats.stale_hits += 1
        elif age is Age.STALE or (age is Age.OLD and away is not None):
            self._stats.stale_hits += 1
            self._join(lookup.name, False)
        elif away is not None and not due:
            self._stats.misses += 1
            lookup.error = away
        else:
            lookup.fallback = found is not None
            lookup.flight = self._join(lookup.name, True)
            if lookup.flight is None:
                lookup.error = Unavailable(f"more than {FLIGHTS_MAX} lookups wait")
        return lookup

    def _await(self, lookup: Lookup, until: float) -> Credential:
        if lookup.flight is not None:
            try:
                result = lookup.flight.future.result(max(until - time.monotonic(), 0.0))
            except FutureTimeout:
                result = None
            self._settled(lookup, result)
        return lookup.result()

    def _settled(self, lookup: Lookup, result: Result | None) -> None:
        """Sets the result of the flight; None: it did not arrive in time."""
        lookup.credential, lookup.error = result or (None, Unavailable("no response before the timeout"))
        with self._lock:
            # Unless the entry was dropped or has expired in the meantime.
            if isinstance(lookup.error, Unavailable) and lookup.fallback and (found := self._cache.get(lookup.name)[0]):
                lookup.credential, lookup.error = found.credential, None
                self._stats.stale_hits += 1
            else:
                self._stats.misses += 1

    def _join(self, name: str, wanted: bool) -> Flight | None:
        """The flight of a name in progress, or a new one; None if too many wait. Call with the lock."""
        found = self._flights.get(name)
        if found is None:
            if len(self._queue) >= FLIGHTS_MAX:
                return None
            found = self._flights[name] = Flight(name)
            self._queue.append(found)
        found.wanted = found.wanted or wanted
        return found

    def _dispatch(self) -> None:
        """Starts workers for the queue. Call with the lock."""
        while self._workers < AT_ONCE and len(self._queue) > self._starting * NAMES_MAX:
            self._workers += 1
            self._starting += 1
            threading.Thread(target=self._work, name="bulla-credentials", daemon=True).start()

    def _work(self) -> None:
        """Sends the queue in batches. Names that arrive during a request are sent with the next one."""
        first = True
        while True:
            with self._lock:
                self._starting -= first
                first = False
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), NAMES_MAX))]
                if not batch:
                    self._workers -= 1
                    return
                now = self._cache.now()
                for flight in batch:
                    flight.asked = now
                single = now < self._single
            try:
                if single:
                    self._send_each(batch)
                else:
                    self._send(batch)
            except Exception as error:  # No caller may wait for a worker that has ended.
                self._fail([flight for flight in batch if not flight.future.done()], Unavailable(f"{error!r}"))

    def _finish(self, flight: Flight, credential: Credential | None, error: CredentialError | None) -> None:
        """Sets the result of a flight and caches it, unless the name has changed since the request."""
        with self._lock:
            if self._flights.get(flight.name) is flight:
                del self._flights[flight.name]
                if error is None and not self._transport.closed.is_set():
                    self._cache.put(flight.name, credential, flight.asked, flight.wanted)
        flight.future.set_result((credential, error))

    def _fail(self, batch: list[Flight], error: CredentialError) -> None:
        if isinstance(error, Forbidden):
            # The store does not accept this client any more, so nothing that it read earlier is served.
            self._drop()
        for flight in batch:
            self._finish(flight, None, error)

    def _send(self, batch: list[Flight]) -> None:
        """Looks up a batch. If the store rejects it as a whole (one invalid name, values too large together), it is sent in halves,
        so that only one caller gets the error. Other errors go to all callers, because halves would fail as well."""
        body = json.dumps({"lookups": [[flight.name] for flight in batch]}).encode()
        try:
            response = self._transport.request("POST", "/api/v1/lookup", body)
        except CredentialError as error:
            if error.status in (404, 405):
                with self._lock:
                    self._single = self._cache.now() + SINGLE_FOR
                self._send_each(batch)
            elif error.status in (400, 413) and len(batch) > 1:
                half = len(batch) // 2
                self._send(batch[:half])
                self._send(batch[half:])
            else:
                self._fail(batch, error)
            return
        results = _parsed(response, "results")
        if results is None or len(results) != len(batch):
            self._fail(batch, Unavailable("the response to a lookup is not valid"))
            return
        for flight, document in zip(batch, results):
            self._settle(flight, document)

    def _settle(self, flight: Flight, document: Any) -> None:
        """Sets the result of a flight from the store's document; None: there is no credential."""
        if document is None:
            self._finish(flight, None, None)
            return
        try:
            if document.get("error"):
                self._finish(flight, None, Refused(str(document["error"]), status=500))
                return
            credential = Credential(document)
            valid = normal(credential.name) == flight.name
        except (ValueError, KeyError, TypeError, AttributeError):
            valid = False
        if valid:
            self._finish(flight, credential, None)
        else:
            self._finish(flight, None, Unavailable("the response is not this credential"))

    def _send_each(self, batch: list[Flight]) -> None:
        """Looks up names one by one, from a store without the route for batches."""
        for flight in batch:
            try:
                response = self._transport.request("GET", f"/api/v1/data?current=true&name={quote(flight.name, safe='')}")
            except CredentialError as error:
                if error.status == 404:
                    self._finish(flight, None, None)
                elif error.status == 403:
                    self._finish(flight, None, error)
                else:
                    self._fail([flight], error)
                continue
            results = _parsed(response, "data")
            if results:
                self._settle(flight, results[0])
            else:
                self._finish(flight, None, Unavailable("the response to a lookup is not valid"))

    def _count_change(self) -> None:
        with self._lock:
            self._stats.changes += 1

    def _changed(self, name: str) -> None:
        """Drops a changed value. A value in use is read again immediately, so that it is cached even if the store fails next."""
        with self._lock:
            self._flights.pop(name, None)
            if self._cache.remove(name):
                self._join(name, False)
                self._dispatch()
        self._notify(name)

    def _drop(self) -> None:
        """Drops all values, because this client may not be permitted to read them any more."""
        with self._lock:
            self._flights.clear()
            self._cache.clear()

    def _gap(self, delay: float) -> None:
        """Any value may have changed until now: after the delay each is read again before it is served."""
        with self._lock:
            self._stats.gaps += 1
            self._flights.clear()
            self._cache.gap(delay)
        if delay == 0:
            self._notify(None)
        elif self._on_change is not None:
            timer = threading.Timer(delay, self._notify, [None])
            timer.daemon = True
            timer.start()

    def _notify(self, name: str | None) -> None:
        if self._on_change is None or self._transport.closed.is_set():
            return
        with self._notifying:
            try:
                self._on_change(name)
            except Exception as error:  # The stream of changes goes on.
                threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread())))

    def _forked(self) -> None:
        """Continues in a forked process, which has none of the threads and must not use the parent's connections."""
        self._lock.release()
        self._notifying = threading.Lock()
        if self._follower is not None:
            self._follower.forked()
            self._follower = None
        self._transport.forked()
        self._flights.clear()
        self._queue.clear()
        self._workers = self._starting = 0
        self._cache.unfollow()


def _token(token: str | Secret | Callable[[], str | Secret] | None) -> Secret | Callable[[], Secret] | None:
    if callable(token):
        made = token
        return lambda: _secret(made())
    secret = None if token is None else _secret(token)
    if secret is not None and any(letter.isspace() for letter in secret.reveal()):
        raise Invalid("the token contains white space: strip the text of its file")
    return secret


def _secret(text: str | Secret) -> Secret:
    return text if isinstance(text, Secret) else Secret(text)


def _parsed(response: bytes, field: str) -> list[Any] | None:
    try:
        results = json.loads(response)[field]
    except (ValueError, KeyError, TypeError):
        return None
    return results if isinstance(results, list) else None


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_forking: list[Client] = []


def _before_fork() -> None:
    # With the locks, so that no cache is copied while it changes.
    _forking.extend(_clients)
    for client in _forking:
        client._lock.acquire()


def _after_fork_in_parent() -> None:
    for client in _forking:
        client._lock.release()
    _forking.clear()


def _after_fork_in_child() -> None:
    for client in _forking:
        client._forked()
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
