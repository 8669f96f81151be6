"""Compares a bill of materials (CycloneDX) with Cargo.lock: `sbom.py FILE Cargo.lock`."""

import json
import sys
import tomllib


def main(path, lock_path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    with open(lock_path, "rb") as file:
        locked = {(entry["name"], entry["version"]): entry for entry in tomllib.load(file)["package"]}
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    references = set()
    for component in document["components"]:
        entry = locked[component["name"], component["version"]]
        hashes = [each["content"] for each in component.get("hashes", [])]
        assert hashes == ([entry["checksum"]] if "checksum" in entry else []), component
        assert component["licenses"][0]["expression"], component
        assert component["bom-ref"] not in references, component
        references.add(component["bom-ref"])
    for dependency in document["dependencies"]:
        assert dependency["ref"] in references and references.issuperset(dependency["dependsOn"]), dependency
    names = {component["name"] for component in document["components"]}
    # Of the program itself, of its cryptography, and of each feature of a release.
    for name in ("bulla", "aws-lc-rs", "aws-sdk-acm", "azure_identity", "google-cloud-auth", "kube", "cryptoki"):
        assert name in names, f"{name} is missing"
    # Of tests and builds alone.
    for name in ("proptest", "insta", "testbed", "syn", "cc"):
        assert name not in names, f"{name} is not in the binary"
    print(f"{len(names)} crates")


main(*sys.argv[1:])
