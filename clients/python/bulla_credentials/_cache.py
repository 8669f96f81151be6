"""The cache by name, and how current its entries are. The lock of the client protects it."""

from __future__ import annotations

import enum
import random
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timezone

from ._values import Credential

# Memory of a cached name in addition to its value.
ENTRY_BYTES = 512
# Names without a credential have additional memory, one part in so many of the memory for values. So lookups of such names evict no
# value.
ABSENT_PARTS = 4
# Lifetimes are shortened by a random part, at most this fraction, so that entries read together are not read again together.
SPREAD = 0.2
# Seconds for which an entry is fresh while the stream of changes is unbroken.
FOLLOWED_FRESH = 24 * 3600.0


def jitter(whole: float, part: float) -> float:
    """A random time between whole * (1 - part) and whole."""
    return whole * (1 - part * random.random())


class Age(enum.IntEnum):
    """How current an entry is."""

    #: Known to be current.
    FRESH = 0
    #: Served once more, while it is refreshed.
    STALE = 1
    #: Served only if the store does not respond.
    OLD = 2
    #: Never served.
    GONE = 3


@dataclass(frozen=True)
class Limits:
    """Lifetimes in seconds, and sizes."""

    ttl: float
    negative_ttl: float
    revalidate: float
    max_stale: float
    max_entries: int
    max_bytes: int


@dataclass
class Entry:
    """A cached result of a lookup."""

    name: str
    #: None: the store has no such credential.
    credential: Credential | None
    asked: float
    fresh_for: float
    #: Read since its last change.
    used: bool
    #: The value may have changed since it was read.
    doubted: bool = False

    def size_bytes(self) -> int:
        return ENTRY_BYTES + (self.credential._size if self.credential else len(self.name))


class Lru:
    """Maps names to entries and evicts the least recently used one."""

    def __init__(self, entries: int, size_bytes: int) -> None:
        self.entries, self.size_bytes = entries, size_bytes
        self.held: OrderedDict[str, Entry] = OrderedDict()
        self.size = 0

    def get(self, name: str) -> Entry | None:
        found = self.held.get(name)
        if found is not None:
            self.held.move_to_end(name)
        return found

    def put(self, entry: Entry) -> None:
        self.held[entry.name] = entry
        self.size += entry.size_bytes()
        while len(self.held) > self.entries or self.size > self.size_bytes:
            self.remove(next(iter(self.held)))

    def remove(self, name: str) -> Entry | None:
        removed = self.held.pop(name, None)
        if removed is not None:
            self.size -= removed.size_bytes()
        return removed

    def clear(self) -> None:
        self.held.clear()
        self.size = 0


class Cache:
    """Credentials and missing names."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.values = Lru(limits.max_entries, limits.max_bytes)
        self.absent = Lru(limits.max_entries, limits.max_bytes // ABSENT_PARTS)
        # The store reports every change since this time, if any, until the stream ends, if it has.
        self.since: float | None = None
        self.until: float | None = None
        # The last gap, until its time has come: values requested until the second time are not trusted from the first time on.
        self.pending: tuple[float, float] | None = None
        self.distrusted: float | None = None

    @staticmethod
    def now() -> float:
        return time.monotonic()

    @staticmethod
    def wall() -> datetime:
        return datetime.now(timezone.utc)

    def get(self, name: str) -> tuple[Entry | None, Age]:
        """The entry of a name with its age."""
        found = self.values.get(name) or self.absent.get(name)
        if found is None:
            return None, Age.GONE
        age = self._age(found)
        if age is Age.GONE:
            self.remove(name)
            return None, age
        found.used = True
        return found, age

    def _age(self, entry: Entry) -> Age:
        now = self.now()
        # Time since the entry was last known to be current.
        quiet = now - self._confirmed(entry.asked, now)
        expires = entry.credential.expires_at if entry.credential else None
        if quiet > self.limits.max_stale or (expires is not None and self.wall() >= expires):
            return Age.GONE
        if entry.doubted or self._distrusts(entry.asked, now):
            return Age.OLD
        if quiet < entry.fresh_for and (quiet > 0 or now - entry.asked < FOLLOWED_FRESH):
            return Age.FRESH
        return Age.STALE if quiet < entry.fresh_for + self.limits.revalidate else Age.OLD

    def _confirmed(self, asked: float, now: float) -> float:
        """The last time at which the response to a request at `asked` was known to be current."""
        if self.since is None or asked < self.since:
            return asked
        return now if self.until is None else max(asked, self.until)

    def _distrusts(self, asked: float, now: float) -> bool:
        if self.pending is not None and now >= self.pending[0]:
            self.distrusted, self.pending = self.pending[1], None
        return self.distrusted is not None and asked <= self.distrusted

    def put(self, name: str, credential: Credential | None, asked: float, used: bool) -> None:
        """Stores the result of a request at `asked`. `used`: a caller waits for it."""
        self.remove(name)
        lifetime = self.limits.negative_ttl if credential is None else self.limits.ttl
        made = Entry(name, credential, asked, jitter(lifetime, SPREAD), used)
        (self.absent if credential is None else self.values).put(made)

    def remove(self, name: str) -> bool:
        """Whether the entry was read since its last change, so that it will likely be read again."""
        removed = self.values.remove(name) or self.absent.remove(name)
        return removed is not None and removed.used

    def clear(self) -> None:
        self.values.clear()
        self.absent.clear()

    def follow(self, resumed: bool) -> None:
        """Begins a period in which the store reports every change; `resumed`: also the changes since the last stream ended."""
        if not resumed or self.since is None:
            self.since = self.now()
        self.until = None

    def unfollow(self) -> None:
        if self.following():
            self.until = self.now()

    def following(self) -> bool:
        return self.since is not None and self.until is None

    def gap(self, delay: float) -> None:
        """Any value may have changed until now. After the delay each is read again before it is served."""
        now = self.now()
        self._distrusts(now, now)
        begin = now + delay if self.pending is None else min(self.pending[0], now + delay)
        self.pending = (begin, now)
