"""The client against a store whose responses the test decides."""

import asyncio
import io
import os
import queue
import threading
import unittest

from bulla_credentials import AsyncClient, Client, Forbidden, Invalid, NotFound, Unavailable
from bulla_credentials._client import AT_ONCE, NAMES_MAX
from bulla_credentials._events import EVENT_MAX, Event, events
from bulla_credentials._transport import ATTEMPTS_MAX
from tests.fake import Fake, following, until


def text(client, name):
    return client.get(name).text().reveal()


class Clients(unittest.TestCase):
    def setUp(self):
        self.store = Fake()
        self.addCleanup(self.store.close)

    def client(self, **options):
        client = self.store.client(**options)
        self.addCleanup(client.close)
        return client

    def followed(self, **options):
        client = self.store.followed(**options)
        self.addCleanup(client.close)
        return client

    def threads(self, count, target):
        failed = []

        def run(number):
            try:
                target(number)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
        for thread in threads:
            thread.start()

        def join():
            for thread in threads:
                thread.join()
            self.assertEqual(failed, [])

        return join

    def test_concurrent_lookups_of_a_name_share_a_request(self):
        self.store.set("/a", "one")
        self.store.hold = threading.Event()
        client = self.client()
        # A caller that gives up does not cancel the request for others.
        with self.assertRaisesRegex(Unavailable, "no response before the timeout"):
            client.get("/a", timeout=0.01)
        until("the request begins", lambda: len(self.store.asked()) == 1)
        join = self.threads(200, lambda _: self.assertEqual(text(client, "/A"), "one"))
        self.store.hold.set()
        join()
        stats = client.stats()
        self.assertEqual((len(self.store.asked()), stats.requests, stats.hits + stats.misses), (1, 1, 201), stats)

    def test_names_during_requests_are_collected_for_the_next(self):
        self.store.hold = threading.Event()
        client = self.client()
        joins = []
        for number in range(AT_ONCE):
            name = f"/first{number}"
            self.store.set(name, name)
            joins.append(self.threads(1, lambda _, name=name: self.assertEqual(text(client, name), name)))
            until("a request begins", lambda: len(self.store.asked()) == number + 1)
        for number in range(100):
            self.store.set(f"/n{number}", "x")
        joins.append(self.threads(100, lambda number: self.assertEqual(text(client, f"/n{number}"), "x")))
        until("they wait", lambda: len(client._queue) == 100)
        self.store.hold.set()
        for join in joins:
            join()
        self.assertEqual([len(names) for names in self.store.asked()], [1] * AT_ONCE + [100])

    def test_get_many_uses_one_request(self):
        self.store.set("/a", "one")
        self.store.set("/b", "two")
        client = self.client()
        found = client.get_many(["a", "/B", "/none", "/a"], missing_ok=True)
        self.assertEqual({name: one.name for name, one in found.items()}, {"a": "/a", "/B": "/b", "/a": "/a"})
        self.assertEqual(self.store.asked(), [["/a", "/b", "/none"]])
        with self.assertRaisesRegex(NotFound, "credential /none: not found: does not exist"):
            client.get_many(["/a", "/none"])
        with self.assertRaises(Invalid):
            client.get("")
        self.assertEqual(len(self.store.asked()), 1, "the absence is cached")
        names = [f"/n{number}" for number in range(NAMES_MAX + 1)]
        for name in names:
            self.store.set(name, "x")
        self.assertEqual((len(client.get_many(names)), len(self.store.asked())), (len(names), 3))

    def test_rejected_batch_is_sent_in_halves(self):
        self.store.set("/a", "one")
        self.store.set("/b", "two")
        found = self.client().get_many(["/a", "/bad", "/b"], missing_ok=True)
        self.assertEqual(set(found), {"/a", "/b"})

    def test_store_without_batches_gets_single_requests(self):
        self.store.old = True
        self.store.set("/a", "one")
        client = self.client()
        self.assertEqual(set(client.get_many(["/a", "/none"], missing_ok=True)), {"/a"})
        self.assertEqual(text(client, "/a"), "one")
        self.assertEqual(self.store.asked(), [["/a"], ["/none"]])

    def test_cached_value_is_served_while_the_store_is_unavailable(self):
        self.store.set("/a", "one")
        client = self.client()
        passed = 0.0
        now = client._cache.now
        client._cache.now = lambda: now() + passed
        text(client, "/a")
        self.store.status = 503
        # Old, so that the store is asked.
        passed = 1800.0
        self.assertEqual(text(client, "/a"), "one")
        self.assertEqual(len(self.store.asked()), 1 + ATTEMPTS_MAX)
        with self.assertRaisesRegex(Unavailable, "/b: unavailable: the test wants 503"):
            client.get("/b")
        passed = 3700.0
        with self.assertRaises(Unavailable):
            client.get("/a")
        self.store.status = 0
        self.store.set("/a", "two")

        def back():
            try:
                return text(client, "/a") == "two"
            except Unavailable:
                return False

        until("the store is asked again", back)

    def test_doubted_value_is_read_again(self):
        self.store.set("/a", "one")
        client = self.client()
        text(client, "/a")
        self.store.set("/a", "two")
        self.assertEqual(text(client, "/a"), "one")
        client.doubt("/A")
        self.assertEqual(text(client, "/a"), "two")

    def test_refused_client_loses_its_cache(self):
        self.store.set("/a", "one")
        client = self.client()
        text(client, "/a")
        self.store.status = 401
        for name in ("/b", "/a"):
            with self.assertRaises(Forbidden):
                client.get(name)

    def test_idle_connection_is_reused_or_replaced(self):
        client = self.client()
        for number in range(4):
            self.store.brief = number >= 2
            self.store.set(f"/n{number}", "x")
            text(client, f"/n{number}")
        stats = client.stats()
        self.assertEqual((len(self.store.connections), stats.retries), (2, 0), stats)

    def test_change_invalidates_and_is_read_again(self):
        self.store.set("/a", "one")
        changes = queue.Queue()
        client = self.followed(on_change=changes.put)
        self.assertIsNone(changes.get(timeout=60), "the start of the stream is a gap")
        text(client, "/a")
        self.store.set("/a", "two")
        before = len(self.store.asked())
        self.store.say(1, "credential.changed", {"name": "/A", "type": "password"})
        self.assertEqual(changes.get(timeout=60), "/a")
        until("the value in use is read again", lambda: len(self.store.asked()) == before + 1)
        self.assertEqual(text(client, "/a"), "two")
        self.store.say(2, "credential.changed", {"name": "/other"})
        self.assertEqual(changes.get(timeout=60), "/other")
        stats = client.stats()
        self.assertEqual((stats.changes, stats.gaps, len(self.store.asked())), (2, 1, before + 1), stats)

    def test_response_from_before_a_change_is_not_cached_or_shared(self):
        self.store.set("/a", "one")
        client = self.followed()
        holds, joins = [threading.Event(), threading.Event()], []
        for number, hold in enumerate(holds):
            self.store.hold = hold
            joins.append(self.threads(1, lambda _: text(client, "/a")))
            until("the caller does not share an earlier request", lambda: len(self.store.asked()) == 2 + number)
            self.store.say(number, "credential.changed", {"name": "/a"})
            until("the change arrives", lambda: client.stats().changes == number + 1)
        self.store.hold = None
        for hold, join in zip(holds, joins):
            hold.set()
            join()
            with client._lock:
                self.assertIsNone(client._cache.get("/a")[0])
        text(client, "/a")
        text(client, "/a")
        self.assertEqual(len(self.store.asked()), 4)

    def test_changed_access_drops_every_value(self):
        self.store.set("/a", "one")
        client = self.followed()
        text(client, "/a")
        del self.store.values["/a"]
        self.store.say(1, "access", {"changed": True})
        until("the value is dropped", lambda: not client.get_many(["/a"], missing_ok=True))

    def test_stream_resumes_and_a_gap_reads_every_value_again(self):
        self.store.set("/a", "one")
        client = self.followed()
        text(client, "/a")
        self.store.say(7, "place", {})
        self.store.ready = {"resumed": True}
        self.store.cut()
        until("the stream is resumed", lambda: len(self.store.resumed) == 2 and following(client))
        self.assertEqual(self.store.resumed[1], "0-7")
        before = len(self.store.asked())
        text(client, "/a")
        self.assertEqual((client.stats().gaps, len(self.store.asked())), (1, before), "a resumed stream has no gap")
        self.store.set("/a", "two")
        self.store.ready = {"resumed": False}
        self.store.cut()
        until("the value is read again", lambda: text(client, "/a") == "two")
        self.store.set("/a", "three")
        self.store.say(8, "lagged", {"missed": 9})
        until("the value is read again", lambda: text(client, "/a") == "three")

    def test_asyncio(self):
        self.store.set("/a", "one")
        self.store.hold = threading.Event()
        client = AsyncClient(self.client())

        async def run():
            cancelled = asyncio.create_task(client.get("/a"))
            all = [asyncio.create_task(client.get("/a")) for _ in range(200)]
            await asyncio.sleep(0)
            cancelled.cancel()
            self.store.hold.set()
            self.assertEqual({one.text().reveal() for one in await asyncio.gather(*all)}, {"one"})
            self.assertTrue((await asyncio.gather(cancelled, return_exceptions=True))[0])
            self.assertEqual(set(await client.get_many(["/a", "/none"], missing_ok=True)), {"/a"})
            with self.assertRaises(NotFound):
                await client.get("/none")

        asyncio.run(run())
        self.assertEqual(self.store.asked(), [["/a"], ["/none"]])

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_forked_process_continues_with_the_cache_and_its_own_connections(self):
        self.store.set("/a", "one")
        self.store.set("/b", "two")
        client = self.followed()
        text(client, "/a")
        # Both workers and their connections are busy in the parent.
        hold, joins = threading.Event(), []
        self.store.hold = hold
        for number in range(AT_ONCE):
            held = [f"/held{number}"]
            joins.append(self.threads(1, lambda _, held=held: client.get_many(held, missing_ok=True)))
            until("it waits", lambda: len(self.store.asked()) == 3 + number)
        self.store.hold = None
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if (text(client, "/a"), text(client, "/b")) == ("one", "two") else 2
                until("its own stream begins", lambda: following(client))
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        hold.set()
        for join in joins:
            join()
        self.assertEqual(text(client, "/b"), "two")
        self.assertEqual(len(self.store.resumed), 2)
        self.store.set("/a", "new")
        self.store.say(1, "credential.changed", {"name": "/a"})
        until("the parent's stream works", lambda: text(client, "/a") == "new")

    def test_token_of_a_function_is_sent_with_each_request(self):
        self.store.set("/a", "one")
        tokens = []
        client = self.client(token=lambda: tokens[0])
        with self.assertRaisesRegex(Unavailable, "no token: list index out of range"):
            client.get("/a")
        tokens.append("bulla_token")

        def back():
            try:
                return bool(client.get("/a"))
            except Unavailable:
                return False

        until("the store is asked again", back)


class Parts(unittest.TestCase):
    def test_event_parser(self):
        stream = (
            b'id: 0-1\nevent: ready\ndata: {}\n\n:\n\nevent: credential.changed\r\nid:0-2\r\ndata: {"name":\r\n'
            b'data:"/a"}\r\n\r\nevent: cut'
        )
        wanted = [Event("0-1", "ready", "{}"), Event("0-2", "credential.changed", '{"name":"/a"}')]
        self.assertEqual(list(events(io.BytesIO(stream))), wanted)
        for endless in (b"x" * (EVENT_MAX + 1), (b"data: " + b"x" * 1000 + b"\n") * 100):
            with self.assertRaises(Unavailable):
                list(events(io.BytesIO(endless)))

    def test_options_are_checked(self):
        for url in ("http://store.example:8844", "store.example:8844", "https://", "https://user:pw@store.example", "https://x:y"):
            with self.assertRaises(Invalid):
                Client(url)
        for options in ({"ttl": 0}, {"token": "bulla_x\n"}, {"max_bytes": -1}):
            with self.assertRaises(Invalid) as raised:
                Client("https://store.example", **options)
            self.assertNotIn("bulla_x", str(raised.exception))
        with Client("https://localhost:1") as client:
            pass
        with self.assertRaisesRegex(Unavailable, "closed"):
            client.get("/a")
