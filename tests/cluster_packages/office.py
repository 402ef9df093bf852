"""The programs of the image sandbox-office in pods of a cluster, by the manifests of docs/packages.md: what `make test-office` tries inside
the locks of this machine, and what only a pod has (its limits, its volumes, an environment of packages on top)."""

import json
import os
import tempfile

import builder
from bed import apply, get
from harness import assert_equal, kubectl
from installed import REPOSITORY, SANDBOXES, SKILLS, STATE, install, on_a_release, run_whole, until
from parts import ROOT

SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  sandbox:
    imageName: office
    timeoutSeconds: 60
    resources: {limits: {memory: %(memory)s}}
  source:
    inline:
      files: %(files)s
"""
SKILL_TEXT = "---\nname: %s\ndescription: Works on documents.\n---\nRun the programs.\n"
MARKDOWN = "# Quarterly report\n\nAll *figures* are in euros.\n\n| item | sum |\n|------|-----|\n| rent | 1200 |\n"
TO_PDF = ["soffice", "--headless", "--convert-to", "pdf"]
# A converter of packages and a program of the image in one run.
WITH_PACKAGES = """
import pathlib, subprocess
import helper
pathlib.Path("a.md").write_text("# %s\\n" % helper.NAME)
subprocess.run(["pandoc", "a.md", "-o", "a.docx"], check=True)
subprocess.run(["soffice", "--headless", "--convert-to", "pdf", "a.docx"], check=True, capture_output=True)
print(subprocess.run(["pdftotext", "a.pdf", "-"], check=True, capture_output=True, text=True).stdout.strip())
"""
# One file that is too large, then more files than the work volume holds, where programs put theirs: MiB in /tmp until the error.
FILL_TMP = """
import errno
written = 0
for size in (100, 40):
    try:
        for number in range(9):
            with open("/tmp/%d-%d" % (size, number), "wb", buffering=0) as file:
                for _ in range(size):
                    written += file.write(bytes(1 << 20)) >> 20
    except OSError as error:
        print(errno.errorcode[error.errno], written)
"""
# More processes than a pod may have, each of which does nothing.
MANY = """
import errno, subprocess
started = []
try:
    for _ in range(500):
        started.append(subprocess.Popen(["sleep", "20"]))
except OSError as error:
    print(errno.errorcode[error.errno], 20 < len(started) < 400)
for each in started:
    each.kill()
"""


def test_file(name):
    """A script that the tests on this machine run too."""
    with open(os.path.join(ROOT, "crates", "execution", "tests", "office", name), encoding="utf-8") as file:
        return file.read()


def skill(name, files, memory="1Gi"):
    files = {"SKILL.md": SKILL_TEXT % name, **files}
    apply(SKILL % {"name": name, "namespace": SKILLS, "memory": memory, "files": json.dumps(files)})
    kubectl("wait", "-n", SKILLS, "skill/" + name, "--for=condition=Ready", "--timeout=800s")


class Run:
    """One run of a skill's command, in a pod of its own, with files beside it; what it said and left."""

    def __init__(self, name, words, inputs=(), ends=0):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for input_name, data in dict(inputs).items():
                paths += ["--input", os.path.join(folder, input_name)]
                with open(paths[-1], "wb") as file:
                    file.write(data)
            self.told = run_whole(name, words, "--files-dir", os.path.join(folder, "files"), *paths, ends=ends)
            self.stdout, self.files = self.told["stdout"], {}
            for each in self.told["files"]:
                with open(each["saved"], "rb") as file:
                    self.files[each["name"]] = file.read()

    def file(self, name, begins):
        data = self.files.get(name)
        if data is None or not data.startswith(begins):
            raise AssertionError("no %s that begins with %r: %s" % (name, begins, self.told))
        return data

    def says(self, *parts):
        for part in parts:
            if part not in self.stdout:
                raise AssertionError("%r is not in %s" % (part, self.told))


def installed():
    install()
    images = {"images": [{"name": "office", "image": STATE["office"]}], "maxResources": {"memory": "1Gi"}}
    kubectl("patch", "skillruntime", "default", "-n", SANDBOXES, "--type=merge", "-p", json.dumps({"spec": {"sandbox": images}}))
    skill("docx", {})


def documents():
    """Each step is a run of its own, as calls of a model are."""
    times = []

    def step(words, inputs):
        ran = Run("docx", words, inputs)
        times.append("%s %d ms" % (words[0], ran.told["run_ms"]))
        return ran
    docx = step(["pandoc", "inputs/report.md", "-o", "report.docx"], {"report.md": MARKDOWN.encode()}).file("report.docx", b"PK")
    pdf = step([*TO_PDF, "inputs/report.docx"], {"report.docx": docx}).file("report.pdf", b"%PDF")
    step(["pdftotext", "-layout", "inputs/report.pdf", "-"], {"report.pdf": pdf}).says("Quarterly report", "1200")
    step(["qpdf", "--check", "inputs/report.pdf"], {"report.pdf": pdf}).says("No syntax or stream encoding errors")
    png = step(["pdftoppm", "-r", "150", "-png", "inputs/report.pdf", "page"], {"report.pdf": pdf}).file("page-1.png", b"\x89PNG")
    step(["tesseract", "inputs/page.png", "-"], {"page.png": png}).says("Quarterly report")
    jobs = get("jobs", "-n", SANDBOXES, "-l", "knack.dev/skill=docx")["items"]
    assert_equal({job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs}, {STATE["office"]}, "images of the runs")
    return ", ".join(times)


def sheets_and_slides():
    xlsx = Run("docx", ["soffice", "--headless", "--convert-to", "xlsx", "inputs/sheet.csv"], {"sheet.csv": b"a,b\n2,=A2*21\n"}).file("sheet.xlsx", b"PK")
    back = Run("docx", ["soffice", "--headless", "--convert-to", "csv", "inputs/sheet.xlsx"], {"sheet.xlsx": xlsx})
    assert_equal(back.file("sheet.csv", b"a,b"), b"a,b\n2,42\n", "the calculated sheet")
    pptx = Run("docx", ["pandoc", "inputs/slides.md", "-o", "slides.pptx"], {"slides.md": b"# One\n\nx\n\n# Two\n\ny\n"}).file("slides.pptx", b"PK")
    Run("docx", [*TO_PDF, "inputs/slides.pptx"], {"slides.pptx": pptx}).file("slides.pdf", b"%PDF")


def scripts():
    """python by its name, a shell, node, a fixed path below /tmp; a unix socket that reaches nobody."""
    skill("scripts", {"scripts/script.py": test_file("script.py"), "scripts/socket_of.py": test_file("socket.py")})
    said = Run("scripts", ["python3", "skills/scripts/scripts/script.py"]).stdout.splitlines()
    assert_equal([line for line in said if not line.startswith("convert")], ["True True", "True", "42", "42", "42", "42"], "what a script finds")
    said = Run("scripts", ["python3", "skills/scripts/scripts/socket_of.py"]).stdout
    assert_equal(said, "made\nbind EPERM\nconnect EPERM\nabstract EPERM\ninet EPERM\n", "a unix socket")


def bounds():
    """Memory is the skill's; the work volume is a quarter of it, /tmp included; LibreOffice does with the default."""
    skill("modest", {}, memory="512Mi")
    Run("modest", [*TO_PDF, "inputs/a.csv"], {"a.csv": b"a,b\n1,2\n"}).file("a.pdf", b"%PDF")
    hold = {"scripts/hold.py": "import sys\nprint(len(b'x' * (int(sys.argv[1]) << 20)) >> 20)\n"}
    skill("large", hold)
    assert_equal(Run("large", ["python3", "skills/large/scripts/hold.py", "700"]).stdout, "700\n", "a run in 1Gi")
    skill("small", hold, memory="512Mi")
    ended = Run("small", ["python3", "skills/small/scripts/hold.py", "700"], ends=137)
    assert_equal(ended.told["end"], "ended by its memory limit", "the same in 512Mi")
    skill("fills", {"scripts/fill.py": FILL_TMP, "scripts/many.py": MANY})
    assert_equal(Run("fills", ["python3", "skills/fills/scripts/many.py"]).stdout, "EAGAIN True\n", "processes without end")
    assert_equal(Run("fills", ["python3", "skills/fills/scripts/fill.py"]).stdout, "EFBIG 64\nENOSPC 255\n", "a full /tmp")


def packages_on_top():
    """A skill of the image that declares packages gets its environment on top of it."""
    skill("both", {"requirements.txt": "helper\n", "scripts/both.py": WITH_PACKAGES})
    found = until("both", "Ready")
    assert_equal((found["accepted"], found["reason"]), (True, "Accepted"), "the verdict")
    assert_equal(found["packages"]["environment"].partition("@")[0], REPOSITORY, "where its image is")
    assert_equal(Run("both", ["python3", "skills/both/scripts/both.py"]).stdout.strip(), "helper", "the answer")


STEPS = [
    ("a release with the image installs, and a skill asks for it by name", installed),
    ("documents are converted, read and checked in pods", documents),
    ("a spreadsheet is calculated and slides become a PDF", sheets_and_slides),
    ("scripts find what public skills ask of their machine", scripts),
    ("memory and /tmp have the bounds of any run", bounds),
    ("packages of a skill stand on top of the image", packages_on_top),
]


def tests(report):
    on_a_release(report, STEPS, builder.WHEELS, {"base": "sandbox-python", "office": "sandbox-office"})
