#!/usr/bin/env python3
"""Records `make demo` as an animated SVG: docs/demo.svg.

    tools/recording.py --knack target/release/knack [--out docs/demo.svg]

Runs tests/demo/demo.py on a terminal of its own, with the scripted model, and draws every line that it printed.
The lines appear at a pace for reading; the times printed in them are those of the run.
Where nothing is animated (a viewer without CSS, reduced motion), the picture is the whole text.
The demo prints lines with colours and moves no cursor; an escape sequence other than a colour is refused.
"""

import argparse
import base64
import fcntl
import html
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Columns of the drawn terminal: the longest line of the demo's conversation fits into two rows.
COLUMNS = 112
# The wrapped part of a line is indented like the demo's own text, below its first word.
INDENT = " " * 8
# Reading pace: a pause per line, and the time of a character.
LINE_SECONDS, CHARACTER_SECONDS = 0.15, 0.007
# Geometry in SVG units. A character of a 13 px monospace font is 7.8 wide.
CHARACTER, ROW, MARGIN, BAR, PICTURE_HEIGHT = 7.8, 18, 20, 34, 150
# A repository's front page is no place for a large file.
MAX_BYTES = 200_000
STYLES = {"1": "b", "2": "d", "31": "r", "32": "g"}
MIME = {".gif": "image/gif", ".png": "image/png"}


def run(command, environment):
    """What the command prints on a terminal. Its exit code other than 0 is a RuntimeError with the output."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment, cwd=ROOT)
    os.close(slave)
    output = b""
    while True:
        try:
            read = os.read(master, 65536)
        except OSError:  # EIO: the other end is closed.
            read = b""
        if not read:
            break
        output += read
    os.close(master)
    text = output.decode("utf-8").replace("\r\n", "\n")
    if child.wait() != 0:
        raise RuntimeError("the demo failed:\n" + text)
    return text


def spans(line):
    """One line as [(style, text)]; the style is a letter of STYLES, or empty."""
    style, found, position = "", [], 0
    for match in re.finditer(r"\x1b\[([0-9;]*)m", line):
        found.append((style, line[position:match.start()]))
        style = STYLES.get(match[1], "")
        position = match.end()
    found.append((style, line[position:]))
    found = [(style, text) for style, text in found if text]
    if any(ord(character) < 32 or character == "\x7f" for _, text in found for character in text):
        raise ValueError("a control sequence that is no colour: %r" % line)
    return found


def wrap(line):
    """The rows of one line of spans: words stay whole, rows after the first are indented, no row is longer than COLUMNS."""
    rows, row, width = [], [], 0
    for style, text in line:
        for word in re.findall(r"\s+|\S+", text):
            while width + len(word) > COLUMNS:
                if width > len(INDENT) and len(word) <= COLUMNS - len(INDENT):
                    word = word.lstrip()
                else:
                    row.append((style, word[:COLUMNS - width]))
                    word = word[COLUMNS - width:]
                rows.append(row)
                row, width = [("", INDENT)], len(INDENT)
            if word:
                row.append((style, word))
                width += len(word)
    return rows + [row]


def pictures(text):
    """The files that the demo lists and an SVG can hold: [(name, mime, bytes)]."""
    found = []
    for path in re.findall(r"^  (/\S+) \(\d+ bytes\)$", text, re.M):
        mime = MIME.get(os.path.splitext(path)[1])
        if mime:
            with open(path, "rb") as file:
                found.append((os.path.basename(path), mime, file.read()))
    return found


def svg(text, images):
    """The picture: the lines of a terminal, and below them the images, each with its name."""
    out, y, seconds = [], BAR + MARGIN, 0.5
    for line in text.rstrip("\n").split("\n"):
        rows = wrap(spans(line))
        shown = ["".join(text for _, text in row) for row in rows]
        out.append('<g style="animation-delay:%.2fs">' % seconds)
        for row in rows:
            inner = "".join('<tspan class="%s">%s</tspan>' % (style, html.escape(text)) if style else html.escape(text)
                            for style, text in row)
            if inner.strip():
                out.append('<text x="%d" y="%d">%s</text>' % (MARGIN, y, inner))
            y += ROW
        out.append("</g>")
        seconds += LINE_SECONDS + CHARACTER_SECONDS * sum(map(len, shown))
    x, width = MARGIN, 2 * MARGIN + COLUMNS * CHARACTER
    if images:
        out.append('<g style="animation-delay:%.2fs">' % seconds)
        for name, mime, content in images:
            column = (width - 2 * MARGIN) / len(images)
            out.append('<image x="%d" y="%d" width="%d" height="%d" preserveAspectRatio="xMinYMin" href="data:%s;base64,%s"/>' % (
                x, y, column - MARGIN, PICTURE_HEIGHT, mime, base64.b64encode(content).decode()))
            out.append('<text x="%d" y="%d" class="d">%s</text>' % (x, y + PICTURE_HEIGHT + ROW, html.escape(name)))
            x += column
        out.append("</g>")
        y += PICTURE_HEIGHT + 2 * ROW
    height = y + MARGIN
    head = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %(w)d %(h)d" width="%(w)d" height="%(h)d" xml:space="preserve" role="img" aria-label="A terminal that runs make demo">
<!-- Written by make recording. -->
<style>
text { font-family: ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; fill: #d6dbe1; white-space: pre }
.b { font-weight: 700; fill: #ffffff } .d { fill: #8b949e } .g { fill: #56d364 } .r { fill: #ff7b72 }
g { animation: appear 0.01s both }
@keyframes appear { from { opacity: 0 } to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { g { animation: none } }
</style>
<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="6" fill="#ff5f57"/><circle cx="40" cy="18" r="6" fill="#febc2e"/><circle cx="60" cy="18" r="6" fill="#28c840"/>
""" % {"w": width, "h": height}
    return head + "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--knack", required=True, help="path of the knack binary; knack-runner is beside it")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "demo.svg"))
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="knack-demo-")
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    try:
        text = run([sys.executable, "tests/demo/demo.py", "--knack", os.path.abspath(options.knack), "--keep", folder], environment)
        picture = svg("\x1b[2m$\x1b[0m make demo\n" + text, pictures(re.sub(r"\x1b\[[0-9;]*m", "", text)))
    finally:
        shutil.rmtree(folder)
    if len(picture.encode()) > MAX_BYTES:
        sys.exit("recording: %d bytes, more than %d: show less" % (len(picture.encode()), MAX_BYTES))
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(picture)
    print("%s: %d bytes" % (options.out, len(picture.encode())))


if __name__ == "__main__":
    main()
