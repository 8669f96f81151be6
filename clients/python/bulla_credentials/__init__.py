"""A client of Bulla's credential store with a cache, for programs that read secrets often.

    from bulla_credentials import Client

    client = Client("https://store.example:8844", token=os.environ["BULLA_TOKEN"])
    password = client.get("/team/database").text().reveal()

Build one client and share it between threads. It connects at the first lookup.

- Concurrent lookups of one name share one request. While two requests are in progress, further names are collected for the next.
- The store reports changes over server-sent events: a changed value is read again immediately, and a change of permissions empties the
  cache. After a gap in the events every value is read again before it is served.
- While the store is unreachable, cached values are served for `max_stale` seconds.

`AsyncClient` has the same methods for asyncio. The package needs only the standard library.
"""

from ._aio import AsyncClient
from ._client import Client, Stats
from ._errors import CredentialError, Forbidden, Invalid, NotFound, Refused, Unavailable, WrongType
from ._values import Certificate, Credential, KeyPair, Secret, User

__all__ = [
    "AsyncClient",
    "Certificate",
    "Client",
    "Credential",
    "CredentialError",
    "Forbidden",
    "Invalid",
    "KeyPair",
    "NotFound",
    "Refused",
    "Secret",
    "Stats",
    "Unavailable",
    "User",
    "WrongType",
]
