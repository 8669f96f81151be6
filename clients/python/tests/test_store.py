"""The client against a running store, by the program in BULLA. See `.ci/interop clients`."""

import json
import os
import pathlib
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from bulla_credentials import Client, CredentialError, Forbidden, NotFound, Unavailable
from tests.fake import following, until

DAY = 24 * 3600.0


class Bulla:
    """A store of its own."""

    def __init__(self, program):
        self.program = program
        self.data = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.data.name)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        self.server = None
        self.url = f"https://localhost:{self.ports[2]}"
        self.start()
        self.token = json.loads(self.run("token", "create", "app", "--role", "viewer", "--output", "json"))["token"]

    def environment(self):
        return {"PATH": os.environ["PATH"], "BULLA_DATA": self.data.name, "HOME": self.data.name}

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], env=self.environment(), check=True, capture_output=True).stdout

    def start(self):
        listen = ["--listen", "--public-listen", "--credential-listen"]
        addresses = [word for option, port in zip(listen, self.ports) for word in (option, f"127.0.0.1:{port}")]
        log = self.folder / "log"
        with open(log, "wb") as file:
            command = [self.program, "up", "--roles", "server", *addresses]
            self.server = subprocess.Popen(command, env=self.environment(), stdout=subprocess.DEVNULL, stderr=file)
        end = time.monotonic() + 120
        while b"bulla is up" not in log.read_bytes():
            if self.server.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the server does not start: {log.read_text()}")
            time.sleep(0.02)

    def stop(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.server = None

    def close(self):
        self.stop()
        self.data.cleanup()

    def manage(self, method, path, body=None):
        """Sends a request as the administrator and returns the response."""
        token = (self.folder / "admin.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        context = ssl.create_default_context(cafile=self.folder / "root.pem")
        with urllib.request.urlopen(request, context=context, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else None

    def set(self, name, kind, value):
        self.manage("PUT", "/api/v1/data", {"name": name, "type": kind, "value": value})

    def grant(self, path):
        permission = {"actor": "uaa-client:app", "path": path, "operations": ["read"]}
        return self.manage("POST", "/api/v2/permissions", permission)["uuid"]


def outcome(client, name):
    """The text, or the type of the error."""
    try:
        return client.get(name).text().reveal()
    except CredentialError as error:
        return type(error)


@unittest.skipUnless(os.environ.get("BULLA"), "BULLA does not name the program; see .ci/interop clients")
class Store(unittest.TestCase):
    def test_store(self):
        """The time to live is a day: every value that is seen earlier was reported by the store."""
        store = Bulla(os.environ["BULLA"])
        self.addCleanup(store.close)
        store.set("/app/db", "password", "one")
        store.set("/app/second", "password", "one")
        store.set("/other/secret", "value", "hidden")
        permission = store.grant("/app/*")
        options = {"ttl": DAY, "negative_ttl": DAY, "max_stale": 2 * DAY}
        client = Client(store.url, token=store.token, ca_file=store.folder / "root.pem", **options)
        self.addCleanup(client.close)
        self.every_type(store, client)
        until("the stream begins", lambda: following(client))
        self.one_request(store)
        self.change(store, client)
        self.restart(store, client)
        self.revoke(store, client, permission)

    def every_type(self, store, client):
        self.assertEqual(outcome(client, "/other/secret"), NotFound)
        store.set("/app/value", "value", "text")
        store.set("/app/json", "json", {"a": {"port": 5432}})
        # Generating these would take seconds.
        store.set("/app/ssh", "ssh", {"public_key": "ssh-ed25519 AAAA", "private_key": "private"})
        store.set("/app/rsa", "rsa", {"public_key": "public", "private_key": "private"})
        certificate = {"common_name": "app.example.com", "self_sign": True, "key_type": "p256"}
        for kind, parameters in [("password", {"length": 40}), ("user", {}), ("certificate", certificate)]:
            store.manage("POST", "/api/v1/data", {"name": f"/app/{kind}", "type": kind, "parameters": parameters})
        kinds = ["value", "json", "password", "user", "certificate", "ssh", "rsa"]
        found = client.get_many(f"/app/{kind}" for kind in kinds)
        self.assertEqual({one.name: one.type for one in found.values()}, {f"/app/{kind}": kind for kind in kinds})
        self.assertEqual(found["/app/value"].text().reveal(), "text")
        self.assertEqual(found["/app/json"].field("a", "port").reveal(), "5432")
        self.assertEqual(len(found["/app/password"].text().reveal()), 40)
        user = found["/app/user"].user()
        self.assertTrue(len(user.username) == 20 and user.password and user.password_hash.reveal().startswith("$6$"))
        certificate = found["/app/certificate"].certificate()
        self.assertIn("PRIVATE KEY", certificate.private_key.reveal())
        ssl.PEM_cert_to_DER_cert(certificate.certificate)
        pair = found["/app/ssh"].ssh()
        self.assertTrue(pair.public_key == "ssh-ed25519 AAAA" and pair.fingerprint)
        self.assertEqual(found["/app/rsa"].rsa().private_key.reveal(), "private")

    def one_request(self, store):
        # Without the stream of changes, which is a request and causes others.
        client = Client(store.url, token=store.token, ca_file=store.folder / "root.pem", events=False)
        self.addCleanup(client.close)
        texts = []
        threads = [threading.Thread(target=lambda: texts.append(outcome(client, "/app/db"))) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((texts, client.stats().requests), (["one"] * 200, 1), client.stats())

    def change(self, store, client):
        outcome(client, "/app/db")
        store.set("/app/db", "password", "two")
        until("the change is seen", lambda: outcome(client, "/app/db") == "two")
        self.assertEqual(outcome(client, "/app/new"), NotFound)
        store.set("/app/new", "password", "new")
        until("the new name is seen", lambda: outcome(client, "/app/new") == "new")

    def restart(self, store, client):
        # The events above have arrived. Values that are being read again are awaited.
        outcome(client, "/app/db")
        outcome(client, "/app/second")
        store.stop()
        until("the end of the stream is noticed", lambda: not following(client))
        self.assertEqual((outcome(client, "/app/db"), outcome(client, "/app/second")), ("two", "one"))
        client.doubt("/app/db")
        self.assertEqual(outcome(client, "/app/db"), "two", "a doubted value is served while the store is away")
        self.assertEqual(outcome(client, "/app/unknown"), Unavailable)
        store.start()
        store.set("/app/second", "password", "two")
        until("the change is seen", lambda: outcome(client, "/app/second") == "two")

    def revoke(self, store, client, permission):
        until("the stream is back", lambda: following(client))
        until("the value is back", lambda: outcome(client, "/app/db") == "two")
        store.manage("DELETE", f"/api/v2/permissions/{permission}")
        until("the value is dropped", lambda: outcome(client, "/app/db") is NotFound)
        store.grant("/app/*")
        until("the value is back", lambda: outcome(client, "/app/db") == "two")
        store.run("token", "delete", "app")
        until("the values are dropped", lambda: outcome(client, "/app/db") is Forbidden)
