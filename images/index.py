#!/usr/bin/env python3
"""Joins archives of one image, each of another architecture, into one archive with an index over them.

index.py --output FILE --name NAME ARCHIVE...

The archives are those of archive.py. The same archives give the same bytes. Prints the digest of the index.
"""
import argparse
import json
import sys
import tarfile

sys.dont_write_bytecode = True
from archive import Blobs, encode, write

INDEX = "application/vnd.oci.image.index.v1+json"


def read(archive):
    """The blobs of an archive by digest, and its only manifest's descriptor."""
    with tarfile.open(archive) as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    manifests = json.loads(content.pop("index.json"))["manifests"]
    content.pop("oci-layout")
    if len(manifests) != 1:
        raise SystemExit(f"index.py: {archive} holds {len(manifests)} images, expected one")
    return {name.rpartition("/")[2]: data for name, data in content.items()}, manifests[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("archives", nargs="+")
    arguments = parser.parse_args()
    all_blobs, entries = Blobs(), []
    for archive in arguments.archives:
        blobs, manifest = read(archive)
        all_blobs.content.update(blobs)
        config = json.loads(blobs[manifest["digest"].removeprefix("sha256:")])["config"]
        config = json.loads(blobs[config["digest"].removeprefix("sha256:")])
        entries.append({
            "mediaType": manifest["mediaType"], "digest": manifest["digest"], "size": manifest["size"],
            "platform": {"architecture": config["architecture"], "os": config["os"]},
        })
    entries.sort(key=lambda entry: entry["platform"]["architecture"])
    if len({entry["platform"]["architecture"] for entry in entries}) != len(entries):
        raise SystemExit("index.py: two archives of one architecture")
    index = all_blobs.add(INDEX, encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))
    write(arguments.output, arguments.name, all_blobs, index)
    print(index["digest"])


if __name__ == "__main__":
    main()
