"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ._client import Client, Lookup
from ._errors import NotFound
from ._values import Credential


class AsyncClient:
    """The lookups of a `Client` for asyncio. Requests run in the client's background threads. Cancelling a task ends only its wait."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, name: str) -> Credential:
        """As `Client.get`."""
        return await self._await(self.client._begin([name])[0])

    async def get_many(self, names: Iterable[str], *, missing_ok: bool = False) -> dict[str, Credential]:
        """As `Client.get_many`."""
        found = {}
        for lookup in self.client._begin(names):
            try:
                found[lookup.asked] = await self._await(lookup)
            except NotFound:
                if not missing_ok:
                    raise
        return found

    async def _await(self, lookup: Lookup) -> Credential:
        if lookup.flight is not None:
            waiting = asyncio.wrap_future(lookup.flight.future)
            try:
                result = await asyncio.wait_for(waiting, self.client._timeout)
            except asyncio.TimeoutError:
                result = None
            self.client._settled(lookup, result)
        return lookup.result()
