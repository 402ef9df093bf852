#!/usr/bin/env bash
# bench_page.sh PART COMMAND LINES: writes the table of a bench between the marks of its part in docs/benchmarks.md.
# What people wrote outside of the marks stays. LINES is a file with `budget` lines; the last try of each row counts. Or it
# is a table already, in lines that begin with `|`.
# bench_page.sh PART COMMAND LINES dated: each row has its date, and rows that LINES has not stay as they are.
set -euo pipefail
cd "$(dirname "$0")/.."
part=$1 command=$2 lines=$3 mode=${4:-whole}
page=docs/benchmarks.md
begin="<!-- $part: written by $command -->" end="<!-- end of $part -->"
grep -qxF "$begin" $page && grep -qxF "$end" $page || { echo "$page lacks the marks of $part: $begin and $end" >&2; exit 1; }
table=$(mktemp)
trap 'rm -f "$table"' EXIT
if [ "$mode" = dated ]; then
  {
    echo "| budget | value | limit | verdict | measured |"
    echo "|---|---|---|---|---|"
    awk -v begin="$begin" -v end="$end" -v date="$(date -u +%F)" '
      FNR == 1 { file++ }
      function keep(name, row) { if (!(name in rows)) order[++n] = name; rows[name] = row }
      file == 1 && $0 == end { inside = 0 }
      file == 1 && inside && /^\| `/ { keep($2, $0) }
      file == 1 && $0 == begin { inside = 1 }
      file == 2 && /^budget / { keep("`" $2 "`", "| `" $2 "` | " $3 " | " $4 " | " $5 " | " date " |") }
      END { for (i = 1; i <= n; i++) print rows[order[i]] }' $page "$lines"
  } >"$table"
else
  {
    echo "$command, $(nproc) cores, $(uname -s) $(uname -r | cut -d. -f1,2), $(date -u +%F)."
    echo
    if grep -q '^|' "$lines"; then
      grep '^|' "$lines"
    else
      echo "| budget | value | limit | verdict |"
      echo "|---|---|---|---|"
    fi
    awk '/^budget / { row[$2] = "| `" $2 "` | " $3 " | " $4 " | " $5 " |"; if (!($2 in seen)) { seen[$2] = 1; order[++n] = $2 } }
      END { for (i = 1; i <= n; i++) print row[order[i]] }' "$lines"
  } >"$table"
fi
awk -v begin="$begin" -v end="$end" -v table="$table" '
  $0 == end { inside = 0 }
  !inside { print }
  $0 == begin { inside = 1; while ((getline line < table) > 0) print line }' $page >$page.new
mv $page.new $page
