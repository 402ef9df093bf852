"""The standard environment on a cluster: asked for by a skill, and given by a runtime to skills that declare nothing. Built once, in
minutes, so this part runs by its own name (make test-standard)."""

import json
import os
import time

from bed import apply, get, wait_until
from harness import assert_equal
from installed import SKILLS, STATE, environments, install, on_a_release, run_whole, runtime, until, verdict
from parts import wheels_in

SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  packages: %(packages)s
  source:
    inline:
      files:
        SKILL.md: |
          ---
          name: %(name)s
          description: Makes a table.
          ---
          Run scripts/table.py.
        scripts/table.py: %(table)s
        scripts/have.py: %(have)s
"""

# The module of every package, in the order of the lock.
MODULES = """
    bs4 cffi chardet charset_normalizer contourpy cryptography.x509 cycler defusedxml et_xmlfile fontTools.ttLib imageio jinja2 kiwisolver
    lxml.etree markdown markupsafe matplotlib.pyplot mpmath numpy openpyxl packaging.version pandas pdf2image pdfminer.high_level
    pdfplumber PIL.Image pycparser pyparsing pypdf pypdfium2 pytesseract dateutil.parser docx pptx yaml reportlab.pdfgen.canvas
    scipy.stats seaborn soupsieve sympy tabulate typing_extensions tzdata xlrd xlsxwriter
""".split()

# Which packages the code of a run finds, and which of the modules cannot be imported.
HAVE = """
import importlib, importlib.metadata, json, sys
missing = []
for name in %r:
    try:
        importlib.import_module(name)
    except Exception as error:
        missing.append("%%s: %%r" %% (name, error))
print(json.dumps([sorted(each.metadata["Name"].lower() for each in importlib.metadata.distributions()), missing]))
""" % MODULES

# Work that needs libraries of C and files of the packages: arrays, a workbook, a plot, a PDF.
TABLE = """
import io
import matplotlib.pyplot, numpy, pandas, pypdf
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

sums = pandas.DataFrame({"item": ["rent", "food"], "sum": numpy.arange(1, 3) * 600})
sums.to_excel("sums.xlsx", index=False)
print(pandas.read_excel("sums.xlsx")["sum"].tolist())

matplotlib.pyplot.bar(sums["item"], sums["sum"])
matplotlib.pyplot.savefig("sums.png", dpi=50)
with Image.open("sums.png") as plot:
    print(plot.format, plot.size)

page = io.BytesIO()
canvas = Canvas(page)
canvas.drawString(72, 720, "1200 for food")
canvas.save()
print(pypdf.PdfReader(page).pages[0].extract_text().strip())
"""
TOLD = "[600, 1200]\nPNG (320, 240)\n1200 for food\n"
# Installing, compiling and packing forty-five packages.
BUILD_SECONDS = 240
# Importing all of them is the longest run; a sandbox has one CPU.
LIMIT = ("--timeout", "100")


def skill(name, packages):
    apply(SKILL % {"name": name, "namespace": SKILLS, "packages": packages, "table": json.dumps(TABLE), "have": json.dumps(HAVE)})


def has(name):
    """The names of the packages that a run of the skill finds, and the modules that it cannot import."""
    return json.loads(run_whole(name, ["python3", "skills/%s/scripts/have.py" % name], *LIMIT)["stdout"])


def judged(name, state, accepted, reason, source=None):
    """The verdict about a skill, once its packages are in a state."""
    found = until(name, state)
    packages = found["packages"]
    assert_equal((found["accepted"], found["reason"], packages.get("source")), (accepted, reason, source), "the verdict about " + name)
    return packages


def declared(name):
    return get("skill", name, "-n", SKILLS)["status"].get("packages", {})


def wheels():
    """The files of the standard environment, of the index that this machine installs from (run.sh)."""
    found = wheels_in(os.environ["KNACK_STANDARD_WHEELS"])
    assert_equal(len(found), len(MODULES), "wheels of the lock")
    return found


def asked_for():
    """Who asks for it is not served before it is there; who is given it is, without."""
    STATE["begun"] = time.monotonic()
    runtime({"standard": True})
    skill("asks", "{standard: true}")
    skill("bare", "null")

    def at_work():
        found = verdict("asks")
        return found and found.get("packages", {}).get("state") in ("Resolving", "Building")
    wait_until("a builder", 60, at_work)
    assert_equal([verdict("asks")[key] for key in ("accepted", "reason")], [False, "PackagesBuilding"], "who asks")
    assert_equal([verdict("bare")[key] for key in ("accepted", "reason")], [True, "PackagesMissing"], "who is given")
    assert_equal((declared("asks")["source"], declared("asks")["locked"]), ("standard environment", True), "what is declared")
    assert_equal(declared("bare"), {}, "what the other declares")
    found, missing = has("bare")
    assert_equal((found, len(missing)), ([], len(MODULES)), "what it has until then")


def built():
    until("asks", "Ready", BUILD_SECONDS)
    seconds = time.monotonic() - STATE["begun"]
    STATE["environment"] = judged("asks", "Ready", True, "Accepted")["environment"]
    found, missing = has("asks")
    assert_equal((len(found), missing), (len(MODULES), []), "packages, and what cannot be imported")
    assert_equal(run_whole("asks", ["python3", "skills/asks/scripts/table.py"], *LIMIT)["stdout"], TOLD, "the answer")
    return "built in %d s" % seconds


def given():
    """One environment and one build for all skills of one image."""
    before = len(STATE["index"].asked)
    assert_equal(judged("bare", "Ready", True, "Accepted", "standard environment, by the runtime")["environment"], STATE["environment"], "the environment")
    assert_equal(run_whole("bare", ["python3", "skills/bare/scripts/table.py"], *LIMIT)["stdout"], TOLD, "the answer")
    skill("bare-too", "null")
    assert_equal(judged("bare-too", "Ready", True, "Accepted", "standard environment, by the runtime")["environment"], STATE["environment"], "the environment of another skill")
    assert_equal((len(STATE["index"].asked), environments()), (before, 1), "requests to the index, and environments")


def declaration_wins():
    skill("lists", "{python: [tabulate]}")
    if judged("lists", "Ready", True, "Accepted")["environment"] == STATE["environment"]:
        raise AssertionError("a list of one package has all of them")
    assert_equal(has("lists")[0], ["tabulate"], "what a skill has that lists one")
    skill("none", "{python: []}")
    wait_until("a verdict about an empty list", 60, lambda: verdict("none"))
    assert_equal((verdict("none")["accepted"], verdict("none").get("packages")), (True, None), "the verdict about an empty list")
    assert_equal(has("none")[0], [], "what a skill has that lists nothing")


def alone_allowed():
    """A runtime that allows it and nothing else refuses a list, and serves all others as before."""
    runtime({"allowed": "Standard"})
    found = until("lists", "Refused", part="spec.packages.allowed of the runtime is Standard")
    assert_equal((found["accepted"], found["reason"]), (False, "PackagesNotAllowed"), "the verdict about a list")
    assert_equal(judged("asks", "Ready", True, "Accepted")["environment"], STATE["environment"], "the environment of who asks")
    assert_equal(verdict("bare")["packages"]["environment"], STATE["environment"], "the environment of who is given")
    runtime({"allowed": None})
    judged("lists", "Ready", True, "Accepted")


def demanded():
    """A lock is there; a constraint that excludes one of its versions refuses it, or leaves who is given it without."""
    runtime({"standard": True, "requireLock": True})
    assert_equal(until("lists", "Refused")["reason"], "LockRequired", "a list without a lock")
    judged("asks", "Ready", True, "Accepted")
    runtime({"standard": True, "requireLock": None, "constraints": ["numpy<1"]})
    assert_equal((until("asks", "Conflict", part="numpy")["accepted"], verdict("asks")["reason"]), (False, "PackagesConflict"), "who asks")
    assert_equal((until("bare", "Conflict", part="numpy")["accepted"], verdict("bare")["reason"]), (True, "PackagesMissing"), "who is given")


def taken_back():
    runtime(None)
    judged("asks", "Ready", True, "Accepted")
    wait_until("the runtime gives nothing", 60, lambda: verdict("bare").get("packages", {}).get("state") in (None, "NotDeclared"))
    assert_equal(has("bare")[0], [], "what a skill has then")


STEPS = [
    ("a release with the packages of the standard environment installs", install),
    ("who asks for it waits, who is given it is served without", asked_for),
    ("who asks for it imports every package of it", built),
    ("a runtime gives the same to skills that declare nothing, without another build", given),
    ("what a skill declares wins over what its runtime gives", declaration_wins),
    ("it may be all that a runtime allows", alone_allowed),
    ("constraints and a demanded lock hold for it", demanded),
    ("a runtime takes it back", taken_back),
]


def tests(report):
    files = [] if os.environ.get("KNACK_NO_CLUSTER") == "1" else wheels()
    on_a_release(report, STEPS, files, {"base": "sandbox-python"})
