"""Asks a key service for signatures by its native protocol, with a client that gRPC's own tools generate, and has OpenSSL
check each. Needs grpcio and grpcio-tools; see docs/keys.md and `.ci/interop native`.

    python native_check.py PROTO_FOLDER ADDRESS CA CERTIFICATE KEY KEYS_FOLDER
"""

import hashlib
import pathlib
import subprocess
import sys
import tempfile

import grpc
from grpc_tools import protoc

HASHES = {"SHA256": 32, "SHA384": 48, "SHA512": 64}
PATIENCE_S = 60


def generate(proto):
    """Generates messages and client into a folder of their own, and makes them importable."""
    folder = tempfile.mkdtemp()
    arguments = ["protoc", f"-I{proto}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main([*arguments, "bulla/keys/v1/keys.proto"]) != 0:
        sys.exit("the definition does not compile")
    sys.path.insert(0, folder)


def openssl(*arguments):
    run = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    return run.stdout if run.returncode == 0 else None


def verifies(public, scheme, octets, signature):
    """Whether OpenSSL takes the signature."""
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "input").write_bytes(octets)
    (folder / "signature").write_bytes(signature)
    options = []
    if scheme == "ED25519":
        options = ["-rawin"]
    elif scheme.startswith("RSA"):
        options = ["-pkeyopt", f"digest:{scheme.split('_')[2].lower()}"]
        if "PSS" in scheme:
            options += ["-pkeyopt", "rsa_padding_mode:pss", "-pkeyopt", "rsa_pss_saltlen:digest"]
    where = ["-in", str(folder / "input"), "-sigfile", str(folder / "signature")]
    return openssl("pkeyutl", "-verify", "-pubin", "-inkey", str(public), *where, *options) is not None


def family(kind):
    if kind.startswith("rsa"):
        return "RSA"
    return "ED25519" if kind == "ed25519" else "ECDSA"


def main(proto, address, ca, certificate, key, keys_folder):
    generate(proto)
    from bulla.keys.v1 import keys_pb2 as messages
    from bulla.keys.v1 import keys_pb2_grpc as service

    credentials = grpc.ssl_channel_credentials(
        pathlib.Path(ca).read_bytes(), pathlib.Path(key).read_bytes(), pathlib.Path(certificate).read_bytes()
    )
    options = [("grpc.ssl_target_name_override", "localhost")]
    client = service.KeyServiceStub(grpc.secure_channel(address, credentials, options))
    listed = client.ListKeys(messages.ListKeysRequest(), timeout=PATIENCE_S).keys
    kinds = {key.spki_sha256: key.kind for key in listed}
    schemes = [name for name in messages.Scheme.keys() if name.endswith(tuple(HASHES)) or name == "ED25519"]
    checks = 0
    for public in sorted(pathlib.Path(keys_folder).glob("*.pub")):
        der = openssl("pkey", "-pubin", "-in", str(public), "-outform", "DER")
        spki = hashlib.sha256(der).digest()
        requests, wanted = [], []
        for number, scheme in enumerate(schemes):
            octets = bytes([7]) * HASHES.get(scheme.split("_")[-1], 100)
            requests.append(
                messages.SignRequest(
                    id=number, spki_sha256=spki, scheme=messages.Scheme.Value(scheme), input=octets
                )
            )
            wanted.append((scheme, octets, scheme.startswith(family(kinds[spki]))))
        batch = client.SignBatch(messages.SignBatchRequest(requests=requests), timeout=PATIENCE_S).replies
        streamed = client.SignStream(iter(requests), timeout=PATIENCE_S)
        for reply in [*batch, *streamed]:
            scheme, octets, fits = wanted[reply.id]
            if fits:
                assert verifies(public, scheme, octets, reply.signature), (public, scheme, reply)
            else:
                assert reply.failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0], (public, scheme, reply)
            checks += 1
    sealed = client.Seal(messages.SealRequest(clear=b"session"), timeout=PATIENCE_S).sealed
    assert client.Unseal(messages.UnsealRequest(sealed=sealed), timeout=PATIENCE_S).clear == b"session"
    try:
        client.Sign(messages.SignRequest(ski=bytes(20), scheme="ED25519"), timeout=PATIENCE_S)
        sys.exit("a key that is not there has signed")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
    print(f"{checks} signatures and refusals are right")


if __name__ == "__main__":
    main(*sys.argv[1:])
