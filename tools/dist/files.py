#!/usr/bin/env python3
"""The files of a release that name its images: charts and manifests.

files.py version        prints the version; refuses a tree whose charts carry another one
files.py charts FOLDER  packages the charts into FOLDER/charts and writes FOLDER/deploy, with the digests that FOLDER/images.txt has

The same files and digests give the same bytes.
"""
import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
REGISTRY = "ghcr.io/knack-dev"
CHARTS = ["knack", "knack-crds"]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def version():
    """The workspace's version. Each chart must have it, as its own, as its appVersion and in its dependency."""
    wanted = tomllib.loads(read("Cargo.toml"))["workspace"]["package"]["version"]
    for chart in CHARTS:
        for found in re.findall(r"^\s*(?:version|appVersion): (\S+)$", read(f"charts/{chart}/Chart.yaml"), re.M):
            if found.strip('"') != wanted:
                sys.exit(f"dist: charts/{chart}/Chart.yaml has the version {found}, Cargo.toml {wanted}")
    return wanted


def digests(folder):
    """Digest of each image by its name, as images.txt lists them."""
    with open(os.path.join(folder, "images.txt"), encoding="utf-8") as file:
        return dict(line.strip().removeprefix(REGISTRY + "/").split("@") for line in file)


def pinned(text, images, release, path):
    """The text with every image of ours by digest; one that is not in the release is refused."""
    def replace(found):
        if found[1] not in images or found[2] != release:
            sys.exit(f"dist: {path} names {found[0]}, which is not in this release")
        return f"{REGISTRY}/{found[1]}@{images[found[1]]}"
    return re.sub(re.escape(REGISTRY) + r"/([a-z0-9-]+):([A-Za-z0-9_][A-Za-z0-9_.-]*)", replace, text)


def tracked(folder):
    """The files below a folder that Git tracks, as (path, path in the folder)."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", folder], check=True, capture_output=True, text=True).stdout
    return [(path, path.removeprefix(folder + "/")) for path in filter(None, listed.split("\0"))]


def chart_files(chart, images, release):
    """The files of a chart as they go out, by their path in it."""
    files = {}
    for path, inside in tracked(f"charts/{chart}"):
        text = pinned(read(path), images, release, path)
        if path == "charts/knack/values.yaml":
            for section, image in (("image", "knack"), ("gatewayImage", "knack-gateway")):
                text, count = re.subn(rf'^({section}:\n(?:  .*\n)*?)  digest: ""$', rf"\g<1>  digest: {images[image]}", text, flags=re.M)
                if count != 1:
                    sys.exit(f"dist: {path} has {count} empty digests in {section}, expected one")
        files[inside] = text
    return files


def manifests(images, release):
    """The base for kustomize, by path. Its definitions stand beside it, not in a chart."""
    files = {inside: pinned(read(path), images, release, path) for path, inside in tracked("deploy")}
    definitions = tracked("crds")
    files.update({f"crds/{inside}": read(path) for path, inside in definitions})
    chart = "../../charts/knack-crds"
    if chart not in files["crds/kustomization.yaml"]:
        sys.exit(f"dist: deploy/crds/kustomization.yaml does not name {chart}")
    files["crds/kustomization.yaml"] = files["crds/kustomization.yaml"].replace(chart, ", ".join(inside for _, inside in definitions))
    return files


def package(chart, files, output):
    """A chart archive as Helm reads it. Helm's own would carry the time of day."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            data = files[path].encode()
            entry = tarfile.TarInfo(f"{chart}/{path}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    with open(output, "wb") as file:
        file.write(gzip.compress(raw.getvalue(), 9, mtime=0))


def charts(folder):
    release, images = version(), digests(folder)
    os.makedirs(os.path.join(folder, "charts"))
    for chart in CHARTS:
        package(chart, chart_files(chart, images, release), os.path.join(folder, "charts", f"{chart}-{release}.tgz"))
    for path, text in manifests(images, release).items():
        target = os.path.join(folder, "deploy", path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["version"]:
            print(version())
        case ["charts", target]:
            charts(target)
        case _:
            sys.exit(__doc__)
