#!/usr/bin/env python3
"""The bill of materials of a release, CycloneDX 1.6 as JSON, on standard output.

sbom.py RELEASE PACKAGES

RELEASE holds images.txt; PACKAGES/ARCHITECTURE/IMAGE.packages lists the Debian packages of each image, as images/build.sh writes them.
In it: the images, their Debian packages, and every crate of Cargo.lock and fuzz/Cargo.lock with its checksum. Crates that no program of
an image is linked with (build scripts, tests, fuzzing, other systems) have the scope `excluded`. No time and no random number: the same
release gives the same bytes.
"""
import glob
import json
import os
import subprocess
import sys
import tomllib
import urllib.parse

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
LOCKS = ["Cargo.lock", "fuzz/Cargo.lock"]
# The programs of the images and what they are built with.
PROGRAMS = ["knack", "knack-gateway", "knack-runner"]
RUST_TARGETS = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}


def quoted(text):
    return urllib.parse.quote(text, safe="")


def property_of(name, values):
    return [{"name": f"knack:{name}", "value": value} for value in sorted(values)]


# Crates.

def crate_reference(name, version):
    return f"pkg:cargo/{name}@{quoted(version)}"


def locked():
    """Crates of all lock files by reference, and what each depends on."""
    crates, edges = {}, {}
    for lock in LOCKS:
        with open(os.path.join(ROOT, lock), "rb") as file:
            packages = tomllib.load(file)["package"]
        versions = {}
        for package in packages:
            versions.setdefault(package["name"], []).append(package["version"])
        for package in packages:
            reference = crate_reference(package["name"], package["version"])
            crate = crates.setdefault(reference, {"package": package, "locks": set()})
            crate["locks"].add(lock)
            for word in package.get("dependencies", []):
                # `name`, or `name version` where there are several.
                name, _, version = word.partition(" ")
                version = version.split(" ")[0] or versions[name][0]
                edges.setdefault(reference, set()).add(crate_reference(name, version))
    return crates, edges


def metadata(manifest, target, *flags):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target,
               "--manifest-path", os.path.join(ROOT, manifest), *flags]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def told_by_cargo(architectures):
    """Licences by reference, and the references of the crates that the programs are linked with."""
    licences, linked = {}, set()
    for architecture in architectures:
        for manifest, flags in (("Cargo.toml", ["--features", "knack/otel"]), ("fuzz/Cargo.toml", [])):
            data = metadata(manifest, RUST_TARGETS[architecture], *flags)
            references = {}
            for package in data["packages"]:
                references[package["id"]] = crate_reference(package["name"], package["version"])
                licences[references[package["id"]]] = package["license"]
            if manifest != "Cargo.toml":
                continue
            nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
            ways = [package["id"] for package in data["packages"] if package["source"] is None and package["name"] in PROGRAMS]
            seen = set()
            while ways:
                here = ways.pop()
                if here in seen:
                    continue
                seen.add(here)
                linked.add(references[here])
                ways += [dependency["pkg"] for dependency in nodes[here]["deps"]
                         if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
    return licences, linked


def crates_of(architectures):
    crates, edges = locked()
    licences, linked = told_by_cargo(architectures)
    components = []
    for reference, crate in crates.items():
        package = crate["package"]
        component = {
            "type": "library", "bom-ref": reference, "name": package["name"], "version": package["version"],
            "scope": "required" if reference in linked else "excluded",
        }
        if "checksum" in package:
            component["hashes"] = [{"alg": "SHA-256", "content": package["checksum"]}]
        if licences.get(reference):
            # The old form a/b is a OR b.
            component["licenses"] = [{"expression": licences[reference].replace("/", " OR ")}]
        if "source" in package:
            component["purl"] = reference
        component["properties"] = property_of("lock", crate["locks"])
        components.append(component)
    return components, edges


# Images and their packages.

def images_of(release):
    """Each image by its name in images.txt: `REGISTRY/NAME@sha256:DIGEST`."""
    with open(os.path.join(release, "images.txt"), encoding="utf-8") as file:
        for line in file:
            repository, _, digest = line.strip().partition("@")
            name = repository.rpartition("/")[2]
            yield name, {
                "type": "container", "bom-ref": f"{repository}@{digest}", "name": repository, "version": digest,
                "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
                "purl": f"pkg:oci/{name}@{quoted(digest)}?repository_url={quoted(repository)}",
            }


def debian(line, distribution):
    """A component of a line `NAME_VERSION_ARCHITECTURE.deb SHA256`, of the image's architecture."""
    file, checksum = line.split()
    name, version, architecture = file.removesuffix(".deb").split("_")
    version = version.replace("%3a", ":")
    purl = f"pkg:deb/debian/{quoted(name)}@{quoted(version)}?arch={architecture}&distro={distribution}"
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": version, "scope": "required",
        "hashes": [{"alg": "SHA-256", "content": checksum}], "purl": purl,
    }


def distribution():
    with open("/etc/os-release", encoding="utf-8") as file:
        words = dict(line.strip().split("=", 1) for line in file if "=" in line)
    return f"{words['ID']}-{words.get('VERSION_ID', '')}".replace('"', "").rstrip("-")


def uv():
    """The installer in packages-builder, in the version of tools/uv.txt."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "uv.txt"), encoding="utf-8") as file:
        version = file.readline().removeprefix("uv==").split()[0]
    purl = f"pkg:pypi/uv@{version}"
    return {"type": "application", "bom-ref": purl, "name": "uv", "version": version, "scope": "required",
            "licenses": [{"expression": "MIT OR Apache-2.0"}], "purl": purl}


def bill(release, packages, version):
    architectures = sorted({path.split(os.sep)[-2] for path in glob.glob(os.path.join(packages, "*", "*.packages"))})
    components, edges = crates_of(architectures)
    named = {component["name"]: component["bom-ref"] for component in components if component["name"] in PROGRAMS}
    runner = ["knack-runner"]
    programs = {"knack": ["knack", *runner], "knack-gateway": ["knack-gateway"], "runner": runner, "sandbox-python": runner, "sandbox-node": runner, "packages-builder": ["knack"]}
    distributed, by_reference = distribution(), {}
    for name, image in images_of(release):
        inside = edges.setdefault(image["bom-ref"], set())
        inside.update(named[program] for program in programs[name])
        for architecture in architectures:
            with open(os.path.join(packages, architecture, f"{name}.packages"), encoding="utf-8") as file:
                for line in file:
                    component = debian(line, distributed)
                    by_reference[component["bom-ref"]] = component
                    inside.add(component["bom-ref"])
        if name == "packages-builder":
            component = uv()
            by_reference[component["bom-ref"]] = component
            inside.add(component["bom-ref"])
        image["properties"] = property_of("architecture", architectures)
        components.append(image)
    components += by_reference.values()
    components.sort(key=lambda component: component["bom-ref"])
    root = f"knack@{version}"
    edges[root] = {component["bom-ref"] for component in components if component["type"] == "container"}
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": root, "name": "knack", "version": version,
                                   "licenses": [{"expression": "Apache-2.0"}]}},
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": sorted(edges[reference])} for reference in sorted(edges)],
    }


def main():
    release, packages = sys.argv[1:]
    version = subprocess.run([os.path.join(os.path.dirname(__file__), "files.py"), "version"], check=True, stdout=subprocess.PIPE, text=True)
    json.dump(bill(release, packages, version.stdout.strip()), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
