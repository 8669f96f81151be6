"""Errors of the client."""

from __future__ import annotations


class CredentialError(Exception):
    """Base of all errors of this package."""

    kind = "error"

    def __init__(self, message: str, *, name: str = "", status: int = 0) -> None:
        super().__init__(message, name, status)
        self.message = message
        #: The credential, if the error concerns only one.
        self.name = name
        #: The HTTP status of the store's response, or 0.
        self.status = status

    def __str__(self) -> str:
        name = f" {self.name}" if self.name else ""
        status = f" (status {self.status})" if self.status else ""
        return f"credential{name}: {self.kind}: {self.message}{status}"

    def named(self, name: str) -> CredentialError:
        """A copy for one credential: every caller raises an error of its own."""
        return type(self)(self.message, name=name, status=self.status)


class NotFound(CredentialError):
    """The credential does not exist, or this client may not read it. The store does not distinguish the two cases."""

    kind = "not found"


class Forbidden(CredentialError):
    """The store does not accept the client's token or certificate. Retrying does not help."""

    kind = "forbidden"


class Unavailable(CredentialError):
    """The store, its database or the network failed, and the cache has no usable value. Retrying is safe."""

    kind = "unavailable"


class Refused(CredentialError):
    """The store rejected the request, or cannot decrypt the value."""

    kind = "refused"


class Invalid(CredentialError, ValueError):
    """The name or an option is invalid."""

    kind = "invalid"


class WrongType(CredentialError):
    """The credential has another type."""

    kind = "wrong type"
