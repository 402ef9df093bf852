"""What can be said of a release without a cluster."""

import filecmp
import glob
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import tarfile
import tempfile
import tomllib

from harness import ROOT, assert_equal, helm

DIST = os.environ["KNACK_DIST"]
IMAGES = ["knack", "knack-gateway", "packages-builder", "runner", "sandbox-node", "sandbox-python"]
# Of all layers of the sidecar's image, compressed, which every node of an application pulls.
SIDECAR_MAX_BYTES = 15_000_000
REFERENCE = re.compile(r"[a-z0-9.:-]+/[a-z0-9/.-]+(?::[A-Za-z0-9_.-]+|@sha256:[0-9a-f]{64})")


def inside(name):
    return os.path.join(DIST, name)


def text(name):
    with open(inside(name), encoding="utf-8") as file:
        return file.read()


def chart(name="knack"):
    return next(path for path in glob.glob(inside("charts/*.tgz")) if re.fullmatch(rf"{name}-\d.*\.tgz", os.path.basename(path)))


def digests():
    """Digest by image, as images.txt has them."""
    return {line.rpartition("/")[2].partition("@")[0]: line.partition("@")[2] for line in text("images.txt").splitlines()}


def every_file(folder):
    return sorted(os.path.relpath(os.path.join(base, name), folder) for base, _, names in os.walk(folder) for name in names)


def sums_name_every_file():
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=DIST, check=True)
    named = [line.split("  ", 1)[1] for line in text("SHA256SUMS").splitlines()]
    assert_equal(named, [name for name in every_file(DIST) if name != "SHA256SUMS"], "files with a sum")
    return "%d files" % len(named)


def two_builds_give_the_same_bytes():
    again = os.environ["KNACK_DIST_AGAIN"]
    names = every_file(DIST)
    assert_equal(every_file(again), names, "files of the second build")
    _, different, unread = filecmp.cmpfiles(DIST, again, names, shallow=False)
    assert_equal(different + unread, [], "files that differ")


def images_are_what_the_list_says():
    """Each archive holds, by its digest, an index of images for platforms, of which every part is there and has its digest."""
    assert_equal(sorted(digests()), IMAGES, "images")
    platforms = set()
    for image, digest in digests().items():
        with tarfile.open(inside(f"images/{image}.tar")) as tar:
            blobs = {member.name.replace("blobs/sha256/", "sha256:"): tar.extractfile(member).read() for member in tar if member.name.startswith("blobs/")}
            top = json.load(tar.extractfile("index.json"))["manifests"]
        for name, data in blobs.items():
            assert_equal("sha256:" + hashlib.sha256(data).hexdigest(), name, "content in " + image)
        assert_equal([entry["digest"] for entry in top], [digest], "the digest of " + image)
        reached = {digest}
        for entry in json.loads(blobs[digest])["manifests"]:
            manifest = json.loads(blobs[entry["digest"]])
            config = json.loads(blobs[manifest["config"]["digest"]])
            assert_equal(entry["platform"], {"architecture": config["architecture"], "os": "linux"}, "platform of " + image)
            assert_equal(config["config"]["User"], "65532:65532", "user of " + image)
            platforms.add(config["architecture"])
            reached |= {entry["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])}
        assert_equal(set(blobs), reached, "what is in the archive of " + image)
    return ", ".join(sorted(platforms))


def layers(image):
    """Sizes of an image's layers, by platform."""
    with tarfile.open(inside(f"images/{image}.tar")) as tar:
        blob = lambda digest: json.load(tar.extractfile("blobs/" + digest.replace(":", "/")))
        index = blob(digests()[image])["manifests"]
        return {entry["platform"]["architecture"]: [layer["size"] for layer in blob(entry["digest"])["layers"]] for entry in index}


def the_sidecar_is_small():
    """What a node pulls that has no other image of Knack: the base layer, and the layer of the program."""
    sizes = {architecture: sum(parts) for architecture, parts in layers("knack-gateway").items()}
    if not all(0 < size <= SIDECAR_MAX_BYTES for size in sizes.values()):
        raise AssertionError("the image has %r bytes in layers, at most %d wanted" % (sizes, SIDECAR_MAX_BYTES))
    return ", ".join("%s %.1f MB" % (architecture, size / 1e6) for architecture, size in sorted(sizes.items()))


def references(rendered):
    """Every reference to an image of ours that a rendering makes the cluster use."""
    return {found for found in REFERENCE.findall(rendered) if "knack-dev/" in found}


def stock_charts_name_images_by_digest():
    expected = {f"ghcr.io/knack-dev/{image}@{digests()[image]}" for image in ("knack", "knack-gateway", "sandbox-python")}
    for name in ("knack", "knack-crds"):
        helm("lint", "--strict", chart(name))
    assert_equal(references(helm("template", "knack", chart(), "--namespace", "knack-system")), expected, "images of the stock chart")
    assert_equal(references(text("deploy/knack.yaml")), expected, "images of deploy/")
    values = helm("show", "values", chart())
    node = f"ghcr.io/knack-dev/sandbox-node@{digests()['sandbox-node']}"
    if node not in values:
        raise AssertionError("the values do not name " + node)
    listed = references(helm("show", "chart", chart()))
    assert_equal(listed, set(text("images.txt").split()), "images of the chart's annotation")


def notes_of_a_release_warn_of_nothing():
    notes = helm("install", "knack", chart(), "--namespace", "knack-system", "--dry-run=client").split("NOTES:", 1)[1]
    assert_equal("WARNING" in notes, False, "a warning in: " + notes)


def deploy_is_a_base_for_kustomize():
    """What its kustomizations name is there."""
    for folder in ("deploy", "deploy/crds"):
        resources = re.search(r"^resources: \[(.*)\]$", text(folder + "/kustomization.yaml"), re.M)
        for name in resources[1].split(", "):
            if not os.path.isfile(inside(f"{folder}/{name}")):
                raise AssertionError(f"{folder} names {name}, which is not there")


def the_bill_names_everything():
    """Images, each crate of both lock files with its checksum, Debian packages; each dependency is a component."""
    bill = json.loads(text("sbom.cdx.json"))
    components = {component["bom-ref"]: component for component in bill["components"]}
    assert_equal(len(components), len(bill["components"]), "components with a name of their own")
    known = set(components) | {bill["metadata"]["component"]["bom-ref"]}
    unknown = {ref for entry in bill["dependencies"] for ref in [entry["ref"], *entry["dependsOn"]]} - known
    assert_equal(unknown, set(), "dependencies without a component")
    containers = {component["bom-ref"] for component in components.values() if component["type"] == "container"}
    assert_equal(containers, set(text("images.txt").split()), "images")
    for lock in ("Cargo.lock", "fuzz/Cargo.lock"):
        with open(os.path.join(ROOT, lock), "rb") as file:
            for package in tomllib.load(file)["package"]:
                component = components["pkg:cargo/%s@%s" % (package["name"], package["version"].replace("+", "%2B"))]
                sums = [each["content"] for each in component.get("hashes", [])]
                assert_equal(sums, [package["checksum"]] if "checksum" in package else [], "checksum of " + package["name"])
                if component["scope"] == "required" and "licenses" not in component:
                    raise AssertionError("no licence of " + package["name"])
    depends = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    for image, package in (("sandbox-python", "python3"), ("packages-builder", "python3"), ("sandbox-node", "nodejs"), ("knack", "libc6"), ("knack-gateway", "libc6")):
        found = depends[f"ghcr.io/knack-dev/{image}@{digests()[image]}"]
        if not any(ref.startswith("pkg:deb/debian/" + package) for ref in found):
            raise AssertionError(f"{package} is not among what {image} depends on")
    for name, scope in (("rustls", "required"), ("libfuzzer-sys", "excluded"), ("proptest", "excluded")):
        assert_equal({c["scope"] for c in components.values() if c["name"] == name}, {scope}, "scope of " + name)
    return "%d components" % len(components)


def an_image_of_another_release_is_refused():
    """No text leaves with an image by a tag that this release does not have."""
    spec = importlib.util.spec_from_file_location("dist_files", os.path.join(ROOT, "tools", "dist", "files.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    images = {"knack": "sha256:" + "a" * 64}
    assert_equal(module.pinned("x ghcr.io/knack-dev/knack:1.0.0 y", images, "1.0.0", "f"), "x ghcr.io/knack-dev/knack@sha256:" + "a" * 64 + " y", "pinned")
    for other in ("ghcr.io/knack-dev/knack:1.0.1", "ghcr.io/knack-dev/unknown:1.0.0"):
        try:
            module.pinned(other, images, "1.0.0", "f")
        except SystemExit as error:
            assert_equal(other in str(error), True, "the refusal names " + other)
            continue
        raise AssertionError(other + " was taken")


def an_incomplete_image_is_refused():
    """A program without its libraries, or of another architecture, does not become an image."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder + "/usr/bin")
        subprocess.run(["cp", "-L", "/usr/bin/python3", folder + "/usr/bin/python3"], check=True)

        def complete(**environment):
            script = '. images/layers.sh && complete "$0" /usr/bin/python3'
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script, folder], cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment})
            return done.returncode, done.stderr

        code, said = complete()
        assert_equal((code != 0, "which is not in the image" in said), (True, True), "without libraries: " + said)
        native = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
        code, said = complete(ARCHITECTURE="arm64" if native == "amd64" else "amd64")
        assert_equal((code != 0, "is no program of" in said), (True, True), "of another architecture: " + said)


def tests(report):
    report.check("sums name every file", sums_name_every_file)
    if "KNACK_DIST_AGAIN" in os.environ:
        report.check("two builds give the same bytes", two_builds_give_the_same_bytes)
    report.check("images are what the list says", images_are_what_the_list_says)
    program = os.environ.get("KNACK_GATEWAY_PROGRAM", "")
    if os.path.basename(os.path.dirname(program)) in ("", "release"):
        report.check("the sidecar's image is small", the_sidecar_is_small)
    else:
        report.skip("the sidecar's image is small", "its program is not one of a release")
    report.check("stock charts name images by digest", stock_charts_name_images_by_digest)
    report.check("notes of a release warn of nothing", notes_of_a_release_warn_of_nothing)
    report.check("deploy is a base for kustomize", deploy_is_a_base_for_kustomize)
    report.check("the bill of materials names everything", the_bill_names_everything)
    report.check("an image of another release is refused", an_image_of_another_release_is_refused)
    report.check("an incomplete image is refused", an_incomplete_image_is_refused)
