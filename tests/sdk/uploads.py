"""Skills to upload, and the same checks for every vendor's client."""

import io
import warnings
import zipfile

DOCUMENT = "---\nname: {name}\ndescription: {description}\n{metadata}---\n{body}\n"
BINARY = bytes(range(256)) * 4


def folder(name, description="Says the word. Use when somebody asks for it.", body="The word is plover.", more=(), version=None):
    """The files of a skill as `files` of an SDK: name with folder, content."""
    metadata = f'metadata:\n  version: "{version}"\n' if version else ""
    document = DOCUMENT.format(name=name, description=description, metadata=metadata, body=body)
    files = [(f"{name}/SKILL.md", document.encode())]
    files.append((f"{name}/data/all.bin", BINARY))
    return files + [(f"{name}/{path}", content) for path, content in more]


def zipped(files):
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files:
            archive.writestr(path, content)
    return out.getvalue()


def linked(path, target):
    """An archive with a link in it."""
    entry = zipfile.ZipInfo(path)
    entry.create_system, entry.external_attr = 3, 0o120777 << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(entry, target)
    return out.getvalue()


def unzipped(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
