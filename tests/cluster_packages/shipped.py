"""The skills of examples/packages as they are shipped, each with the packages of its lock: imported, applied, and run in pods, with the checks
that tests/examples makes of them on a laptop."""

import os
import tempfile

import package_checks
from bed import apply, get
from harness import assert_equal, kubectl, run
from installed import SKILLS, run_whole, until
from parts import ROOT, wheels_in

FOLDER = os.path.join(ROOT, "examples", "packages")
NAMES = sorted(os.listdir(FOLDER))
# The first import of matplotlib looks for the fonts of the image, on one CPU.
LIMIT = ("--timeout", "100")


class Pods:
    """The sandbox of the release, for the checks of tests/examples/package_checks.py."""

    def run(self, skill, script, *words, inputs=()):
        with tempfile.TemporaryDirectory() as folder:
            options = [*LIMIT, "--files-dir", os.path.join(folder, "files")]
            for name, content in inputs:
                options += ["--input", os.path.join(folder, name)]
                with open(options[-1], "wb") as file:
                    file.write(content if isinstance(content, bytes) else content.encode())
            ended = run_whole(skill, ["python3", "skills/%s/scripts/%s" % (skill, script), *words], *options, ends=None)
            files = {}
            for each in ended["files"]:
                with open(each["saved"], "rb") as file:
                    files[each["name"]] = file.read()
        return ended["exit_code"], ended["stdout"], ended["stderr"], files


def applied():
    """All at once: their environments are built beside each other, and beside the steps that follow."""
    for name in NAMES:
        apply(run([os.environ["KNACK_PROGRAM"], "skill", "import", os.path.join(FOLDER, name), "--namespace", SKILLS]))


def served(name):
    """It is accepted, with the versions of its lock."""
    found = until(name, "Ready", 240)
    assert_equal((found["accepted"], found["reason"]), (True, "Accepted"), "the verdict about " + name)
    declared = get("skill", name, "-n", SKILLS)["status"]["packages"]
    with open(os.path.join(FOLDER, name, "requirements.lock"), encoding="utf-8") as lock:
        pins = [line.split()[0] for line in lock if line[0].isalnum()]
    # One that is for some versions of Python alone has its marker in the status.
    assert_equal((declared["locked"], [pin.split()[0] for pin in declared["python"]]), (True, pins), "what %s declares" % name)


def checked(name, *checks):
    def step():
        served(name)
        for check in checks:
            check(Pods())
    return step


spreadsheet = checked("spreadsheet", package_checks.test_a_table_becomes_a_workbook)
form = checked("pdf-form", package_checks.test_a_form_is_filled_in)
images = checked(
    "image-tools",
    package_checks.test_an_image_is_cropped_and_made_smaller,
    package_checks.test_a_sheet_shows_every_image,
    package_checks.test_what_is_no_image_is_told,
)
plots = checked("data-plot", package_checks.test_a_fitted_line_has_the_slope_of_the_data, package_checks.test_groups_and_formats)


def removed():
    """What follows would build their environments again, for other images."""
    kubectl("delete", "skill", *NAMES, "-n", SKILLS)


STEPS = [
    ("the examples that need packages are applied as they are shipped", applied),
    ("the example with openpyxl makes a workbook", spreadsheet),
    ("the example with pypdf fills in a form", form),
    ("the example with Pillow makes images", images),
]
# Installing matplotlib takes longest, and waits for nothing but time.
LAST_STEPS = [("the example with matplotlib draws plots", plots), ("the examples are removed", removed)]


def wheels():
    """The files of their locks, of the index that this machine installs from (run.sh); what several locks name, once."""
    folders = os.environ["KNACK_EXAMPLE_WHEELS"].split(":")
    return list(dict(wheel for folder in folders for wheel in wheels_in(folder)).items())
