#!/usr/bin/env bash
# document_skills.sh FOLDER: makes the image sandbox-office and the packages of the public document skills (FOLDER holds docx, pptx, xlsx and
# pdf, as github.com/anthropics/skills has them below skills/), and does the work of each of their scripts on small files inside every lock
# (crates/execution/tests/office/document_skills.py). Prints a table. Needs root. KNACK_PROGRAM names knack.
set -euo pipefail
folder=$(realpath "$1")
cd "$(dirname "$0")/.."
roots=$(mktemp -d)
trap 'rm -rf "$roots"' EXIT
mkdir "$roots/skills"
for skill in docx pptx xlsx pdf; do
  [ -f "$folder/$skill/SKILL.md" ] || { echo "document_skills.sh: no $skill/SKILL.md in $folder" >&2; exit 1; }
  cp -r "$folder/$skill" "$roots/skills/"
done
images/build.sh --roots "$roots" sandbox-office
# None of them declares packages: their imports give all four the standard environment, in one folder, which pods would have too.
packages=$(env -u KNACK_PACKAGES_DIR KNACK_UV="$(tools/uv.sh)" "$KNACK_PROGRAM" skill packages --build "$roots/skills" | sed -nE 's/^ .* files, Python [0-9.]+, (.*)/\1/p' | sort -u)
[ -d "$packages" ] || { echo "document_skills.sh: the skills have no environment, or more than one: $packages" >&2; exit 1; }
KNACK_OFFICE_ROOT=$roots/sandbox-office KNACK_DOCUMENT_SKILLS=$roots/skills KNACK_DOCUMENT_PACKAGES=$packages \
  cargo test -p knack-execution --features runner --test office -- --ignored --nocapture document_skills
