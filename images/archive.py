#!/usr/bin/env python3
"""Makes an OCI image archive from folders: the same folders give the same bytes. No registry, no container engine.

archive.py --output FILE --name NAME [--architecture amd64|arm64] [--entrypoint WORD]... [--user UID] [--env NAME=VALUE]...
           [--label NAME=VALUE]... FOLDER...

Each folder is one layer. Owners are root, times are zero, modes are kept; order is that of the names.
Uncompressed by default, since local imports are then faster; --gzip for archives that travel.
Prints the digest of the manifest and the size of the layers.
"""
import argparse, gzip, hashlib, io, json, os, platform, tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def layer(folder):
    """The folder as a tar, entries sorted by path."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for root, folders, files in os.walk(folder):
            folders.sort()
            # A link to a folder is an entry like a file; os.walk does not follow it.
            for name in sorted(folders + files):
                add(tar, folder, os.path.join(root, name))
    return buffer.getvalue()


def add(tar, folder, path):
    entry = tar.gettarinfo(path, arcname=os.path.relpath(path, folder))
    # Two names of one file are two files: which one came first would else decide the bytes.
    tar.inodes.clear()
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    if entry.isreg():
        with open(path, "rb") as file:
            tar.addfile(entry, file)
    else:
        tar.addfile(entry)


class Blobs:
    """Content by digest, in the order in which it was added."""

    def __init__(self):
        self.content = {}

    def add(self, media_type, data):
        digest = hashlib.sha256(data).hexdigest()
        self.content[digest] = data
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(data)}


def encode(value):
    return json.dumps(value, separators=(",", ":")).encode()


def image(arguments):
    """All blobs of the image, the descriptor of its manifest, and the size of its layers in bytes."""
    blobs, layers, diff_ids = Blobs(), [], []
    for folder in arguments.folders:
        raw = layer(folder)
        diff_ids.append("sha256:" + hashlib.sha256(raw).hexdigest())
        media_type = "application/vnd.oci.image.layer.v1.tar"
        if arguments.gzip:
            raw, media_type = gzip.compress(raw, 6, mtime=0), media_type + "+gzip"
        layers.append(blobs.add(media_type, raw))
    run = {"Entrypoint": arguments.entrypoint, "Env": arguments.env, "User": arguments.user, "WorkingDir": "/"}
    if arguments.label:
        run["Labels"] = dict(label.split("=", 1) for label in arguments.label)
    config = blobs.add("application/vnd.oci.image.config.v1+json", encode({
        "architecture": arguments.architecture, "os": "linux", "config": run,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created_by": "knack images/archive.py"} for _ in diff_ids],
    }))
    manifest = blobs.add("application/vnd.oci.image.manifest.v1+json", encode({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers,
    }))
    return blobs, manifest, sum(each["size"] for each in layers)


def write(output, name, blobs, manifest):
    """An OCI archive at `output` that calls the manifest, or the index over several, by `name`."""
    manifest = dict(manifest, annotations={
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    })
    index = encode({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest],
    })
    partial = output + ".partial"
    with tarfile.open(partial, "w") as tar:
        def entry(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        entry("oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        entry("index.json", index)
        for digest, data in blobs.content.items():
            entry("blobs/sha256/" + digest, data)
    os.replace(partial, output)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--architecture", default=ARCHITECTURES[platform.machine()])
    parser.add_argument("--entrypoint", action="append", default=[])
    parser.add_argument("--env", action="append", default=["PATH=/usr/bin:/bin"])
    parser.add_argument("--label", action="append", default=[])
    # A number of nobody's: Kubernetes can only check numbers against runAsNonRoot.
    parser.add_argument("--user", default="65532:65532")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("folders", nargs="+")
    arguments = parser.parse_args()
    blobs, manifest, size = image(arguments)
    write(arguments.output, arguments.name, blobs, manifest)
    print(arguments.name, manifest["digest"], "%.1f MB in layers" % (size / 1e6))


if __name__ == "__main__":
    main()
