"""Drives a server through the client that openapi-python-client made of its description: URL, token, root certificate, request."""

import sys

from bulla_client import AuthenticatedClient
from bulla_client.api.issued import issue_by_profile
from bulla_client.api.people import create_owner, delete_owner, get_owner, list_owners
from bulla_client.api.revocations import revoke_issued
from bulla_client.models import NewIssued, NewPerson, NewRevocation, Problem

url, token, root, csr = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, verify_ssl=root)

owner = create_owner.sync(client=client, body=NewPerson(name="python"))
assert owner.name == "python", owner
owners = list_owners.sync(client=client, limit=1)
assert len(owners.items) == 1, owners
missing = get_owner.sync_detailed("nobody", client=client)
assert isinstance(missing.parsed, Problem) and missing.parsed.status == 404, missing

with open(csr, encoding="utf-8") as file:
    issued = issue_by_profile.sync("default", client=client, body=NewIssued(csr=file.read()))
assert issued.chain.startswith("-----BEGIN"), issued
revoked = revoke_issued.sync(client=client, body=NewRevocation(certificate=str(issued.id), reason="superseded"))
assert revoked.count == 1, revoked
gone = delete_owner.sync_detailed("python", client=client)
assert gone.status_code == 204, gone
print("Python: a client of openapi-python-client works")
