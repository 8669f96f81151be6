"""requests through the proxy: `client.py PROXY CA UPSTREAM NGINX`."""

import sys

import requests

proxy, ca, upstream, nginx = sys.argv[1:]
session = requests.Session()
session.trust_env = False
session.proxies = {"https": proxy}
session.verify = ca


def get(url, **more):
    answer = session.get(url, timeout=60, **more)
    answer.raise_for_status()
    return answer


assert get(f"{upstream}/protocol").text == "HTTP/1.1"
assert len(get(f"{nginx}/file").content) == 1 << 20
large = b"x" * (8 << 20)
assert session.post(f"{upstream}/echo", data=large, timeout=60).content == large
with get(f"{upstream}/events?id=python", stream=True) as events:
    lines = events.iter_lines(chunk_size=1)
    assert next(lines) == b"data: first"
    get(f"{upstream}/seen?id=python")
    assert b"data: second" in list(lines)
