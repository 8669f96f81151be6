"""A store over HTTPS whose responses a test decides."""

from __future__ import annotations

import atexit
import functools
import json
import pathlib
import queue
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from bulla_credentials import Client

PATIENCE = 60.0


def until(what, holds):
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.002)


def following(client):
    with client._lock:
        return client._cache.following()


@functools.cache
def certificate():
    """The files of a certificate and its key."""
    folder = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    files = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A test cuts connections."""


class Fake:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = {}
        self.version = 0
        # The peers of lookups.
        self.connections = set()
        # The names of each lookup.
        self.lookups = []
        # Answers lookups and streams instead of the store; 0: none.
        self.status = 0
        # Lookups wait for it, if any.
        self.hold = None
        # Connections end after a response, without a word before.
        self.brief = False
        # The route for batches is missing.
        self.old = False
        # Last-Event-ID of each stream, and the streams.
        self.resumed = []
        self.streams = []
        self.ready = {"resumed": False}
        self.ca_file, key = certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca_file, key)
        self.server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"store": self}))
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def client(self, **options):
        """A client without a stream of changes. Its timeout does not decide a test."""
        options = {"token": "bulla_token", "ca_file": self.ca_file, "events": False, "timeout": 3 * PATIENCE, **options}
        return Client(self.url, **options)

    def followed(self, **options):
        """A client whose stream of changes has begun."""
        client = self.client(events=True, **options)
        client.get_many(["/first"], missing_ok=True)
        until("the stream begins", lambda: following(client))
        return client

    def close(self):
        self.cut()
        self.server.shutdown()
        self.server.server_close()

    def set(self, name, value):
        with self.lock:
            self.values[name] = value
            self.version += 1

    def asked(self):
        with self.lock:
            return list(self.lookups)

    def say(self, id, kind, data):
        """Sends an event on every stream."""
        with self.lock:
            for stream in self.streams:
                stream.put(f"id: 0-{id}\nevent: {kind}\ndata: {json.dumps(data)}\n\n")

    def cut(self):
        """Ends every stream."""
        with self.lock:
            for stream in self.streams:
                stream.put(None)
            self.streams = []

    def document(self, name):
        with self.lock:
            if name not in self.values:
                return None
            return {
                "name": name,
                "type": "password",
                "id": str(self.version),
                "version_created_at": "2026-11-21T05:00:00Z",
                "metadata": None,
                "value": self.values[name],
            }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Fake

    def log_message(self, format, *arguments):
        pass

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.close_connection or self.store.brief

    def begin(self, names):
        """Counts a request, waits, and answers an error if the test wants one."""
        store = self.store
        with store.lock:
            if names is not None:
                store.lookups.append(names)
                store.connections.add(self.client_address)
            status, hold = store.status, store.hold
        if hold is not None and names is not None:
            hold.wait(PATIENCE)
        if self.headers["Authorization"] != "Bearer bulla_token":
            status = 401
        if status:
            self.answer(status, {"error": "status", "error_description": f"the test wants {status}"})
        return not status

    def do_POST(self):
        names = [name for names in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["lookups"] for name in names]
        if self.store.old:
            self.answer(404, {})
        elif self.begin(names):
            if len(names) > 1 and any("bad" in name for name in names):
                self.answer(400, {"error": "bad"})
            else:
                self.answer(200, {"results": [self.store.document(name) for name in names]})

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/api/v1/events":
            if self.begin(None):
                self.stream()
            return
        name = parse_qs(url.query)["name"][0]
        if self.begin([name]):
            found = self.store.document(name)
            self.answer(200 if found else 404, {"data": [found]} if found else {"error": "none"})

    def stream(self):
        events = queue.Queue()
        with self.store.lock:
            self.store.resumed.append(self.headers.get("Last-Event-ID", ""))
            self.store.streams.append(events)
            ready = json.dumps(self.store.ready)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        text = f'event: ready\ndata: {ready}\n\nevent: access\ndata: {{"changed":false}}\n\n'
        while text is not None:
            chunk = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
            text = events.get()
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True
