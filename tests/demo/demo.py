"""The main job, shown: an unchanged client, real HTTP requests in all four formats, real runs in the sandbox.

    python3 tests/demo/demo.py --knack target/release/knack [--upstream openai|responses|anthropic|gemini]

With the scripted model (the default) every text is checked; with a real one only the files are.
"""

import argparse
import io
import os
import sys
import tempfile
import time
import zipfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "examples")]

from client import Client
from gateway import Gateway
from images import colours, decode_gif, decode_png

SALES = "quarter,north,south\n2025 Q1,120,80\n2025 Q2,150,95\n2025 Q3,90,110\n2025 Q4,180,140\n"
PROSE = ("Knack gives every app the same skills. A skill is a folder with instructions and scripts. "
         "The scripts run once, in a sealed sandbox.")
# What the gateway adds for the model and a client must never see. Texts of the demo do not hold these words.
INTERNAL = [b"load_skill", b"run_code", b"run_skill_tool", b"unit-convert", b"available_skills", b"GIFBuilder",
            b"litellm_code_execution", b"# Answer style"]
# The packages are there, and a machine may be slow; more only hides that they are being installed.
READY_SECONDS = 60
# A thread of its own writes the lines, after the answer.
LINE_SECONDS = 60
SKIPPED_FOLDERS = {".git", "target", "node_modules", ".venv"}
REAL = {
    "openai": ("chat", "OPENAI_API_KEY", "gpt-5-mini"),
    "responses": ("responses", "OPENAI_API_KEY", "gpt-5-mini"),
    "anthropic": ("messages", "ANTHROPIC_API_KEY", "claude-haiku-4-5"),
    "gemini": ("gemini", "GEMINI_API_KEY", "gemini-2.5-flash"),
}
BOLD, DIM, GREEN, RED, PLAIN = "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m"


class Demo:
    """The conversations, what is shown of them, and what is checked."""

    def __init__(self, gateway, upstream, key, model):
        self.gateway = gateway
        self.upstream = upstream
        self.key = key
        self.model = model
        self.requests = 0
        self.checks = 0
        self.made = []

    def client(self, api):
        """A client of the format; with a real provider its only one."""
        return Client(self.gateway.port, REAL[self.upstream][0] if self.upstream else api, self.key, self.model)

    def check(self, condition, message):
        if not condition:
            raise AssertionError(message)
        self.checks += 1

    def ask(self, client, messages, words, stream, expected):
        """Asks, checks, and shows what was said."""
        answer = self.quiet(client, messages, stream, expected)
        how = "%s, %s" % (answer.path, "stream" if stream else "whole")
        show("%syou%s     %s  %s(%s)%s" % (BOLD, PLAIN, words, DIM, how, PLAIN))
        show("%smodel%s   %s" % (BOLD, PLAIN, answer.text.replace("\n", "\n        ")))
        timing = "%.0f ms" % (answer.seconds * 1000)
        if stream:
            timing += ", first byte after %.0f ms, %d events" % (answer.first_byte * 1000, answer.events)
        show("        %s%s | %s%s" % (DIM, timing, answer.console, PLAIN))
        return answer

    def quiet(self, client, messages, stream, expected):
        """Asks and checks the answer: its text, and that nothing internal leaks."""
        console = len(self.gateway.console())
        answer = client.ask(messages, stream)
        answer.console = self.console_line(console)
        self.requests += 1
        self.check(not answer.calls, "a tool call reached the client: %r" % answer.calls)
        if not self.upstream:
            self.check(expected in answer.text, "%r is not in the answer %r" % (expected, answer.text))
            for word in INTERNAL:
                self.check(word not in answer.raw, "%r leaked to the client: %r" % (word, answer.raw))
        return answer

    def console_line(self, start):
        """What the gateway said of this request."""
        end = time.monotonic() + LINE_SECONDS
        while time.monotonic() < end:
            lines = [line for line in self.gateway.console()[start:].split("\n")[:-1] if " | skills: " in line]
            if lines:
                return lines[-1]
            time.sleep(0.01)
        raise AssertionError("the gateway wrote no line about the request")

    def files(self, client, answer, suffix):
        """The files of an answer by URL; they must be those in the folder, and no file of the repository."""
        import json
        path = "/knack/v1/responses/%s/files" % answer.id
        status, listed = client.get(path)
        self.check(status == 200, "%s answered %d: %r" % (path, status, listed))
        names = [entry["name"] for entry in json.loads(listed)["files"] if entry["name"].endswith(suffix)]
        self.check(names, "no %s file among %r" % (suffix, listed))
        status, content = client.get("%s/%s" % (path, names[-1]))
        self.check(status == 200, "the file %s answered %d" % (names[-1], status))
        other = Client(self.gateway.port, client.api, "another-key", self.model)
        self.check(other.get("%s/%s" % (path, names[-1]))[0] == 404, "another key can read the file")
        found = find_file(self.gateway.files, content)
        self.check(found, "%s is not in %s" % (names[-1], self.gateway.files))
        self.check(not find_file(ROOT, content), "%s is a file of the repository" % names[-1])
        self.made.append(found)
        return content

    def bouncing_ball(self):
        """Two turns of one conversation: make it, then make it slower."""
        title("A GIF, and a second turn that needs the first one's skill and file")
        client = self.client("chat")
        words = "Make an animated GIF of a bouncing ball, please."
        messages = [client.user(words)]
        answer = self.ask(client, messages, words, False, "Here is ball.gif")
        first = decode_gif(self.files(client, answer, ".gif"))
        self.shown_gif(first)
        words = "Nice. Now make it three times slower."
        messages += [*answer.messages, client.user(words)]
        answer = self.ask(client, messages, words, True, "three times as slow")
        second = decode_gif(self.files(client, answer, ".gif"))
        self.shown_gif(second)
        self.check(len(first.frames) > 3 and len(second.frames) > 3, "a GIF has too few frames")
        self.check(len(set(first.frames)) > 3, "the ball does not move")
        self.check(min(len(colours(frame)) for frame in first.frames) > 3, "a frame is empty")
        self.check(sum(second.delays) / len(second.delays) > sum(first.delays) / len(first.delays),
                   "the second GIF is not slower: %r, %r" % (first.delays[:3], second.delays[:3]))
        if not self.upstream:
            self.check(second.frames == first.frames, "the second GIF shows other pictures than the first")

    def shown_gif(self, gif):
        show("        %sdecoded: %d x %d, %d frames of %d ms%s" % (
            GREEN, gif.width, gif.height, len(gif.frames), gif.delays[0], PLAIN))

    def chart(self):
        """A file of the user becomes an image."""
        title("A CSV file becomes a chart")
        client = self.client("responses")
        words = "Draw a bar chart of the attached sales.csv as PNG."
        if self.upstream and client.api in ("chat", "responses"):
            # OpenAI itself takes PDF files only; a CSV is usually pasted.
            messages = [client.user(words + "\nsales.csv:\n" + SALES)]
        else:
            messages = [client.user(words, ("sales.csv", SALES))]
        answer = self.ask(client, messages, words + " [sales.csv]", False, "sales.png compares")
        width, height, rgb = decode_png(self.files(client, answer, ".png"))
        show("        %sdecoded: %d x %d, %d colours%s" % (GREEN, width, height, len(colours(rgb)), PLAIN))
        self.check(width >= 200 and height >= 150, "the chart is too small")
        self.check(len(colours(rgb)) > 3, "the chart is empty")

    def workbook(self):
        """A skill whose script needs a package."""
        title("Packages: the same CSV file becomes an Excel workbook")
        self.packages_are_ready("spreadsheet")
        client = self.client("messages")
        words = "Make an Excel file of the attached sales.csv, with totals."
        messages = [client.user(words, ("sales.csv", SALES))]
        answer = self.ask(client, messages, words + " [sales.csv]", True, "sales.xlsx has your 4 quarters")
        with zipfile.ZipFile(io.BytesIO(self.files(client, answer, ".xlsx"))) as book:
            sheet = book.read("xl/worksheets/sheet1.xml").decode()
        cells, totals = sheet.count("<c "), sheet.count("<f>SUM(")
        show("        %sdecoded: %d cells, %d totals%s" % (GREEN, cells, totals, PLAIN))
        self.check(cells >= 15 and totals >= 1, "the workbook lacks the table or its totals")

    def packages_are_ready(self, skill):
        """They were installed before the demo began, so this takes no time and no network."""
        end = time.monotonic() + READY_SECONDS
        start = "packages of %s: ready" % skill
        while start not in self.gateway.console():
            self.check(time.monotonic() < end, "the packages of %s are not there; make demo installs them" % skill)
            time.sleep(0.05)

    def declared_tools(self):
        """A tool with a command line, of a listed skill."""
        title("Declared tools: arguments become a command line")
        words = "How readable is this? " + PROSE
        client = self.client("gemini")
        self.ask(client, [client.user(words)], words, True, "24 words in 3 sentences")

    def every_format(self):
        """One question in every format, whole and streaming."""
        title("One skill, every API")
        words = "Convert a marathon of 26.2 miles to kilometres."
        apis = [REAL[self.upstream][0]] if self.upstream else ["chat", "messages", "responses", "gemini"]
        for number, api in enumerate(apis):
            client = self.client(api)
            for stream in (False, True):
                if stream == bool(number % 2):
                    answer = self.ask(client, [client.user(words)], words, stream, "42.16 kilometres")
                else:
                    answer = self.quiet(client, [client.user(words)], stream, "42.16 kilometres")
                self.check("42" in answer.text, "the conversion is wrong: %r" % answer.text)

    def on_request(self):
        """A template, named by the user."""
        title("A skill by name")
        words = "@release-notes fix: the second GIF kept its old delay\ntest: decode both GIFs"
        client = self.client("messages")
        self.ask(client, [client.user(words)], words.replace("\n", "\n        "), False, "really plays slower")


def show(text):
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for code in () if colour else (BOLD, DIM, GREEN, RED, PLAIN):
        text = text.replace(code, "")
    print(text, flush=True)


def title(text):
    show("\n%s-- %s%s" % (BOLD, text, PLAIN))


def find_file(folder, content):
    """The path of a file with exactly this content below a folder."""
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for name in names:
            path = os.path.join(base, name)
            try:
                if os.path.getsize(path) == len(content):
                    with open(path, "rb") as file:
                        if file.read() == content:
                            return path
            except OSError:
                continue
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--knack", required=True, help="path of the knack binary; knack-runner stands beside it")
    parser.add_argument("--upstream", choices=["mock", *REAL], default="mock")
    parser.add_argument("--keep", help="folder for the files and the console; default: a new one in the temporary folder")
    parser.add_argument("--examples", default=os.path.join(ROOT, "examples"), help="folder of skills, packages and manifests")
    options = parser.parse_args()
    upstream = None if options.upstream == "mock" else options.upstream
    key, model, arguments = "demo-key", "knack-demo", []
    if upstream:
        variable = REAL[upstream][1]
        key, model = os.environ.get(variable, ""), os.environ.get("MODEL") or REAL[upstream][2]
        if not key:
            sys.exit("demo: set %s to your key, e.g. %s=... make demo UPSTREAM=%s" % (variable, variable, upstream))
    else:
        arguments = ["--upstream", "mock=" + os.path.join(ROOT, "examples", "demo", "script.yaml")]
    folder = options.keep or tempfile.mkdtemp(prefix="knack-demo-")
    os.makedirs(folder, exist_ok=True)
    # The client's key goes by its request only; the gateway has none of its own.
    environment = {name: value for name, value in os.environ.items()
                   if not name.endswith("_API_KEY") and not name.startswith("KNACK_UPSTREAM")}
    paths = [os.path.join(options.examples, part) for part in ("skills", "packages", "manifests")]
    begun = time.monotonic()
    demo = gateway = None
    try:
        gateway = Gateway(os.path.abspath(options.knack), folder, paths, arguments, environment)
        show("knack dev serves http://127.0.0.1:%d after %.0f ms; the model is %s" % (
            gateway.port, (time.monotonic() - begun) * 1000, model if upstream else "scripted"))
        demo = Demo(gateway, upstream, key, model)
        demo.bouncing_ball()
        demo.chart()
        demo.workbook()
        demo.declared_tools()
        demo.every_format()
        demo.on_request()
    except Exception as error:
        show("\n%sDEMO FAILED%s: %s: %s" % (RED, PLAIN, type(error).__name__, error))
        if gateway:
            show("console of knack dev (%s):\n%s" % (gateway.log_path, gateway.console()[-6000:]))
        sys.exit(1)
    finally:
        if gateway:
            gateway.stop()
    show("\nFiles that the skills made:")
    for path in demo.made:
        show("  %s (%d bytes)" % (path, os.path.getsize(path)))
    show("\n%sdemo ok%s: %d requests, %d checks, %.1f s" % (
        GREEN, PLAIN, demo.requests, demo.checks, time.monotonic() - begun))


if __name__ == "__main__":
    main()
