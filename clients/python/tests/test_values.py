"""Secrets and typed values."""

import copy
import json
import pickle
import unittest

from bulla_credentials import Secret, WrongType
from bulla_credentials._values import Credential


def credential(kind, value):
    return Credential(
        {
            "name": "/A/x",
            "type": kind,
            "id": "1",
            "version_created_at": "2026-11-21T05:00:00Z",
            "expires_at": "2030-01-02T03:04:05Z",
            "metadata": {"note": "canary"},
            "value": value,
        }
    )


class Values(unittest.TestCase):
    def test_no_format_shows_a_secret(self):
        secret = Secret("canary")
        one = credential("user", {"username": "u", "password": "canary", "password_hash": "canary"})
        user = one.user()
        for value in [secret, [secret], {"a": secret}, user, one, copy.deepcopy(secret), secret.__reduce_ex__.__self__]:
            shown = f"{value} {value!r} {value!s:>30} {str(value)} %s %r" % (value, [value])
            self.assertNotIn("canary", shown)
        self.assertNotIn("canary", "{:>20}".format(secret))
        for encode in (json.dumps, pickle.dumps):
            with self.assertRaises(TypeError) as raised:
                encode(secret)
            self.assertNotIn("canary", str(raised.exception))
        self.assertEqual((secret.reveal(), user.password.reveal(), user.username), ("canary", "canary", "u"))
        self.assertTrue(secret == Secret("canary") and secret != Secret("x") and secret != "canary" and not Secret(""))

    def test_values_of_each_type_are_typed(self):
        for kind in ("value", "password"):
            self.assertEqual(credential(kind, 'aé"').text().reveal(), 'aé"')
        pair = credential("ssh", {"public_key": "ssh-rsa A", "private_key": "k", "public_key_fingerprint": "f"}).ssh()
        self.assertEqual((pair.public_key, pair.private_key.reveal(), pair.fingerprint), ("ssh-rsa A", "k", "f"))
        self.assertEqual(credential("rsa", {"public_key": None, "private_key": "k"}).rsa().public_key, "")
        certificate = credential("certificate", {"ca": None, "certificate": "c", "private_key": "k"}).certificate()
        self.assertEqual((certificate.ca, certificate.certificate, certificate.private_key.reveal()), ("", "c", "k"))
        one = credential("json", {"a": {"b": 12345678901234567890, "none": None}, "list": [1]})
        self.assertEqual(one.field("a", "b").reveal(), "12345678901234567890")
        self.assertEqual(one.field("list").reveal(), "[1]")
        for path in (["a", "none"], ["a", "x"], ["list", "x"]):
            with self.assertRaises(WrongType):
                one.field(*path)
        one.json()["a"] = "changed"
        self.assertNotEqual(one.json()["a"], "changed")
        self.assertEqual((one.metadata(), one.expires_at.year), ({"note": "canary"}, 2030))
        with self.assertRaisesRegex(WrongType, "the type is json, not user"):
            one.user()
