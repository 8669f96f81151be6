"""Ages and limits of cached entries, with a time that the test sets."""

import unittest
from datetime import datetime, timedelta, timezone

from bulla_credentials._cache import ABSENT_PARTS, ENTRY_BYTES, Age, Cache, Limits
from tests.test_values import credential

MINUTE, DAY = 60.0, 24 * 3600.0


class Clock(Cache):
    def __init__(self, entries=100, size_bytes=1 << 20):
        super().__init__(Limits(MINUTE, 10.0, 30.0, 10 * MINUTE, entries, size_bytes))
        self.at = 1000.0

    def now(self):
        return self.at

    def wall(self):
        return datetime(2026, 11, 21, tzinfo=timezone.utc) + timedelta(seconds=self.at)

    def read(self, name, expires_in=None):
        made = credential("password", "v")
        made.expires_at = None if expires_in is None else self.wall() + timedelta(seconds=expires_in)
        self.put(name, made, self.at, True)

    def age(self, name):
        return self.get(name)[1]


class Ages(unittest.TestCase):
    def test_entry_becomes_stale_then_old_then_gone(self):
        cache = Clock()
        self.assertEqual(cache.age("/a"), Age.GONE)
        cache.read("/a")
        cache.put("/none", None, cache.at, True)
        self.assertEqual(cache.age("/a"), Age.FRESH)
        cache.at += 47
        self.assertEqual((cache.age("/a"), cache.age("/none")), (Age.FRESH, Age.OLD))
        cache.at += 14
        self.assertEqual(cache.age("/a"), Age.STALE)
        cache.at += 30
        self.assertEqual(cache.age("/a"), Age.OLD)
        cache.at += 510
        self.assertEqual(cache.age("/a"), Age.GONE)

    def test_expired_version_is_not_served(self):
        cache = Clock()
        cache.read("/a", expires_in=30)
        cache.at += 29
        self.assertEqual(cache.age("/a"), Age.FRESH)
        cache.at += 1
        self.assertEqual(cache.age("/a"), Age.GONE)

    def test_followed_entries_stay_fresh_and_age_after_the_stream_ends(self):
        cache = Clock()
        cache.read("/before")
        cache.at += 1
        cache.follow(False)
        cache.read("/a")
        cache.at += 3600
        self.assertEqual((cache.age("/a"), cache.age("/before")), (Age.FRESH, Age.GONE))
        cache.unfollow()
        cache.at += 599
        self.assertEqual(cache.age("/a"), Age.OLD)
        cache.follow(True)
        self.assertEqual(cache.age("/a"), Age.FRESH)
        cache.at += DAY
        self.assertEqual(cache.age("/a"), Age.STALE)
        cache.unfollow()
        cache.at += 601
        self.assertEqual(cache.age("/a"), Age.GONE)

    def test_gap_makes_earlier_entries_old_after_its_delay(self):
        cache = Clock()
        cache.read("/a")
        cache.gap(2)
        cache.at += 1
        self.assertEqual(cache.age("/a"), Age.FRESH)
        cache.read("/b")
        # Another gap does not delay the first one.
        cache.gap(2)
        cache.at += 1
        self.assertEqual((cache.age("/a"), cache.age("/b")), (Age.OLD, Age.OLD))
        cache.read("/c")
        cache.gap(3600)
        self.assertEqual((cache.age("/a"), cache.age("/c")), (Age.OLD, Age.FRESH))
        cache.gap(0)
        self.assertEqual(cache.age("/c"), Age.OLD)

    def test_cache_stays_within_its_limits(self):
        size_bytes = credential("password", "v")._size + ENTRY_BYTES
        for entries, limit, kept in [(10, 1 << 20, 10), (1000, 20 * size_bytes, 20)]:
            cache = Clock(entries, limit)
            cache.read("/n0")
            for number in range(1, 100):
                self.assertEqual(cache.age("/n0"), Age.FRESH)
                cache.read(f"/n{number}")
                cache.put(f"/none{number}", None, cache.at, True)
            self.assertEqual(len(cache.values.held), kept)
            self.assertLessEqual(cache.values.size, limit)
            self.assertLessEqual(cache.absent.size, limit // ABSENT_PARTS)
            self.assertEqual((cache.age("/n0"), cache.age("/n1")), (Age.FRESH, Age.GONE))
            cache.clear()
            self.assertEqual((cache.values.size, cache.absent.size), (0, 0))
