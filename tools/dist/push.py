#!/usr/bin/env python3
"""Pushes the images of a release to a registry, digests kept. For mirrors, and for tests.

push.py RELEASE REGISTRY   RELEASE is a folder that `make dist` wrote; REGISTRY as registry.example.org:5000/mirror

Speaks HTTPS, and HTTP with KNACK_PUSH_PLAIN=1. No login: for registries that want one, docs/release.md names other tools.
Each image gets the version as its tag, so that the registry keeps it.
"""
import hashlib
import http.client
import json
import os
import sys
import tarfile
import urllib.parse

# One blob, also over a slow line, seconds.
TIMEOUT = 600


class Registry:
    def __init__(self, name):
        self.host, _, self.prefix = name.partition("/")
        kind = http.client.HTTPConnection if os.environ.get("KNACK_PUSH_PLAIN") == "1" else http.client.HTTPSConnection
        self.connection = kind(self.host, timeout=TIMEOUT)

    def call(self, method, path, expected, body=None, media_type="application/octet-stream"):
        self.connection.request(method, path, body, {"Content-Type": media_type} if body is not None else {})
        response = self.connection.getresponse()
        text = response.read()
        if response.status not in expected:
            sys.exit(f"push: {method} {path}: {response.status} {text[:500].decode(errors='replace')}")
        return response

    def repository(self, image):
        return "/v2/" + "/".join(part for part in (self.prefix, image) if part)

    def push_blob(self, image, digest, data):
        base = self.repository(image)
        if self.call("HEAD", f"{base}/blobs/{digest}", (200, 404)).status == 200:
            return
        place = urllib.parse.urlsplit(self.call("POST", f"{base}/blobs/uploads/", (202,), b"").headers["Location"])
        query = "&".join(filter(None, [place.query, "digest=" + urllib.parse.quote(digest)]))
        self.call("PUT", f"{place.path}?{query}", (201,), data)

    def push_manifest(self, image, reference, data, media_type):
        self.call("PUT", f"{self.repository(image)}/manifests/{reference}", (201,), data, media_type)


def blob(tar, digest):
    data = tar.extractfile("blobs/" + digest.replace(":", "/")).read()
    if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
        sys.exit(f"push: {tar.name}: the content of {digest} has another digest")
    return data


def push(archive, registry):
    """Pushes blobs first, manifests after them, the index last: a registry takes nothing that names what it does not have."""
    with tarfile.open(archive) as tar:
        top = json.load(tar.extractfile("index.json"))["manifests"][0]
        repository, _, tag = top["annotations"]["io.containerd.image.name"].rpartition(":")
        image = repository.rpartition("/")[2]
        index = blob(tar, top["digest"])
        for entry in json.loads(index)["manifests"]:
            manifest = blob(tar, entry["digest"])
            parts = json.loads(manifest)
            for part in [parts["config"], *parts["layers"]]:
                registry.push_blob(image, part["digest"], blob(tar, part["digest"]))
            registry.push_manifest(image, entry["digest"], manifest, entry["mediaType"])
        registry.push_manifest(image, tag, index, top["mediaType"])
        return f"{registry.host}{registry.repository(image).removeprefix('/v2')}@{top['digest']}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    release, registry = sys.argv[1], Registry(sys.argv[2])
    for name in sorted(os.listdir(os.path.join(release, "images"))):
        print(push(os.path.join(release, "images", name), registry), flush=True)


if __name__ == "__main__":
    main()
