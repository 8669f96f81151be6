"""Credentials and secrets."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from ._errors import WrongType

_REDACTED = "[redacted]"


class Secret:
    """A text that no formatting or logging shows. Only `reveal` returns the text. It cannot be pickled or encoded as JSON."""

    __slots__ = ("_reveal",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a secret is a str, not {type(text).__name__}")

        def reveal() -> str:
            return text

        # A function, because debuggers and error reporters show the values of attributes.
        self._reveal = reveal

    def reveal(self) -> str:
        """The text."""
        return self._reveal()

    def __repr__(self) -> str:
        return _REDACTED

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _REDACTED

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode("utf-8", "surrogatepass"), other.reveal().encode("utf-8", "surrogatepass"))

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self.reveal() != ""

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; use reveal()")


@dataclass(frozen=True)
class User:
    """The value of a credential of type user."""

    username: str
    password: Secret
    #: SHA-512-crypt of the password.
    password_hash: Secret


@dataclass(frozen=True)
class Certificate:
    """The value of a credential of type certificate, in PEM. Parts may be empty."""

    #: The certificate that signed; during a rotation of the CA both versions, the signing one first.
    ca: str
    certificate: str
    private_key: Secret


@dataclass(frozen=True)
class KeyPair:
    """The value of a credential of type rsa or ssh."""

    public_key: str
    private_key: Secret
    #: Of an SSH key.
    fingerprint: str = ""


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


class Credential:
    """The current version of a credential. It is shared with the cache. Printing it shows no value."""

    __slots__ = ("_metadata", "_size", "_value", "created_at", "expires_at", "id", "name", "type")

    def __init__(self, document: dict[str, Any]) -> None:
        #: Name as it was first written.
        self.name: str = document["name"]
        #: value, json, password, user, certificate, rsa or ssh.
        self.type: str = document["type"]
        #: ID of the version.
        self.id: str = document["id"]
        #: Time of the version.
        self.created_at: datetime = _time(document["version_created_at"])
        expires = document.get("expires_at")
        #: Time from which the version cannot be read, if it expires.
        self.expires_at: datetime | None = _time(expires) if expires else None
        self._value = Secret(json.dumps(document["value"]))
        self._metadata = Secret(json.dumps(document.get("metadata")))
        self._size = len(self.name) + len(self._value.reveal()) + len(self._metadata.reveal())

    def __repr__(self) -> str:
        return f"<Credential {self.name} ({self.type}, version {self.id})>"

    def text(self) -> Secret:
        """A value of type value or password."""
        return Secret(self._of("value", "password"))

    def user(self) -> User:
        """A value of type user."""
        parts = self._of("user")
        return User(parts.get("username") or "", Secret(parts["password"]), Secret(parts.get("password_hash") or ""))

    def certificate(self) -> Certificate:
        """A value of type certificate."""
        parts = self._of("certificate")
        return Certificate(parts.get("ca") or "", parts.get("certificate") or "", Secret(parts.get("private_key") or ""))

    def rsa(self) -> KeyPair:
        """A value of type rsa."""
        return self._pair("rsa")

    def ssh(self) -> KeyPair:
        """A value of type ssh."""
        return self._pair("ssh")

    def json(self) -> Any:
        """The value of any type, decoded. The caller must not log it."""
        return json.loads(self._value.reveal())

    def metadata(self) -> Any:
        """The metadata, decoded; None if there is none."""
        return json.loads(self._metadata.reveal())

    def field(self, *path: str) -> Secret:
        """The value, or its part at `path` (`field("private_key")`), as text: a string unchanged, anything else as JSON."""
        part = self.json()
        for field in path:
            part = part.get(field) if isinstance(part, dict) else None
        if part is None:
            raise WrongType(f"the value of type {self.type} has no field {'.'.join(path)}", name=self.name)
        return Secret(part if isinstance(part, str) else json.dumps(part))

    def _pair(self, kind: str) -> KeyPair:
        parts = self._of(kind)
        private = Secret(parts.get("private_key") or "")
        return KeyPair(parts.get("public_key") or "", private, parts.get("public_key_fingerprint") or "")

    def _of(self, *kinds: str) -> Any:
        if self.type not in kinds:
            raise WrongType(f"the type is {self.type}, not {' or '.join(kinds)}", name=self.name)
        return self.json()
