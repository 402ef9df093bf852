"""Images of several architectures: what images/index.py joins, and what it refuses."""
import hashlib
import json
import os
import subprocess
import tarfile
import tempfile

from harness import ROOT, case, expect


def archive(folder, name, architecture):
    """An archive of one small image, whose only file says its architecture."""
    layer = os.path.join(folder, name + "-layer")
    os.makedirs(layer)
    with open(os.path.join(layer, "is"), "w", encoding="utf-8") as file:
        file.write(architecture)
    path = os.path.join(folder, name + ".tar")
    subprocess.run([f"{ROOT}/images/archive.py", "--output", path, "--name", "knack.local/small:x", "--architecture", architecture, "--gzip", layer], check=True, capture_output=True)
    return path


def joined(output, *archives):
    return subprocess.run([f"{ROOT}/images/index.py", "--output", output, "--name", "knack.local/small:1.0", *archives], capture_output=True, text=True)


@case
def images_of_two_architectures_become_one_index():
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "small.tar")
        arm, amd = (archive(folder, architecture, architecture) for architecture in ("arm64", "amd64"))
        done = joined(output, arm, amd)
        expect(done.returncode == 0, done)
        with tarfile.open(output) as tar:
            content = {member.name: tar.extractfile(member).read() for member in tar}
        blobs = {"sha256:" + name.rpartition("/")[2]: data for name, data in content.items() if name.startswith("blobs/")}
        for digest, data in blobs.items():
            expect("sha256:" + hashlib.sha256(data).hexdigest() == digest, digest)
        [top] = json.loads(content["index.json"])["manifests"]
        expect(top["digest"] == done.stdout.strip() and top["annotations"]["io.containerd.image.name"] == "knack.local/small:1.0", top)
        reached, platforms = {top["digest"]}, []
        for entry in json.loads(blobs[top["digest"]])["manifests"]:
            manifest = json.loads(blobs[entry["digest"]])
            [layer] = manifest["layers"]
            platforms.append(entry["platform"])
            config = json.loads(blobs[manifest["config"]["digest"]])
            expect((config["architecture"], len(blobs[entry["digest"]])) == (entry["platform"]["architecture"], entry["size"]), entry)
            reached |= {entry["digest"], manifest["config"]["digest"], layer["digest"]}
        expect(platforms == [{"architecture": "amd64", "os": "linux"}, {"architecture": "arm64", "os": "linux"}], platforms)
        expect(len(reached) == 7 and reached == set(blobs), (reached, set(blobs)))
        # Another order of the archives gives the same bytes.
        again = os.path.join(folder, "again.tar")
        expect(joined(again, amd, arm).stdout == done.stdout, "another index")


@case
def two_images_of_one_architecture_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "small.tar")
        one, same, other = archive(folder, "one", "amd64"), archive(folder, "same", "amd64"), archive(folder, "other", "arm64")
        for archives in ((one, same), (one, other, same)):
            done = joined(output, *archives)
            expect(done.returncode != 0 and "two archives of one architecture" in done.stderr and not os.path.exists(output), done)
