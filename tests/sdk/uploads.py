"""Skills to upload, and the same checks for every vendor's client."""

import io
import zipfile

DOCUMENT = "---\nname: {name}\ndescription: {description}\n---\n{body}\n"
BINARY = bytes(range(256)) * 4


def folder(name, description="Says the word. Use when somebody asks for it.", body="The word is plover.", more=()):
    """The files of a skill as `files` of an SDK: name with folder, content."""
    files = [(f"{name}/SKILL.md", DOCUMENT.format(name=name, description=description, body=body).encode())]
    files.append((f"{name}/data/all.bin", BINARY))
    return files + [(f"{name}/{path}", content) for path, content in more]


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files:
            archive.writestr(path, content)
    return out.getvalue()


def unzipped(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
