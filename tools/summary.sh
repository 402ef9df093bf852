#!/usr/bin/env bash
# summary.sh run NAME COMMAND...: runs one suite, shows it, keeps its counts and how long it took.
# summary.sh: prints all counts and times, what failed, and one closing line.
set -euo pipefail
folder=${CARGO_TARGET_DIR:-target}/test-counts
mkdir -p "$folder"

# Adds up the closing lines of cargo test ("test result: ok. 3 passed; 1 failed; ...") and of our own runners ("3 passed, 1 failed").
# cargo counts a test that ended as passed; one that did nothing says so in a line `SKIPPED test NAME: why`, and counts as skipped.
count() {
  awk '
    /SKIPPED test [^ ]+: / { p--; s++ }
    /^test result: / { for (i = 1; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1); if ($i ~ /^ignored/) s += $(i-1) } }
    /^([a-z]+: )?[0-9]+ passed, [0-9]+ failed/ { line = $0; sub(/^[a-z]+: /, "", line); split(line, w, " "); p += w[1]; f += w[3]; if (line ~ /skipped/) s += w[5] }
    END { printf "%d %d %d\n", p, f, s }' "$1"
}

if [ "${1:-}" = run ]; then
  name=$2
  shift 2
  log=$folder/$name.log
  echo "== $name"
  SECONDS=0
  # A panic's message names its place; the backtrace of an async test is two hundred lines of runtime that hide it.
  export RUST_BACKTRACE=0
  status=0
  exec {out}> >(exec tee "$log")
  tee=$!
  "$@" >&"$out" 2>&1 {out}>&- || status=$?
  exec {out}>&-
  # The log is complete once tee has ended. A process that the suite left behind holds it open: it is waited for 10 s, not longer.
  for _ in {1..100}; do
    kill -0 "$tee" 2>/dev/null || break
    sleep 0.1
  done
  echo "$(count "$log") $status $SECONDS" >"$folder/$name.count"
  exit "$status"
fi

# What the failed tests of one log said. Of cargo's sections "---- NAME stdout ----" the last lines, which hold the panic; of our own
# runners' checks ("FAILED NAME: why", "FAIL NAME" and a traceback) the name and the last lines, with their number for the suite bounded.
failures() {
  awk -v lines=25 -v of_check=6 '
    function show(  i) { for (i = (n > lines ? n - lines : 0); i < n; i++) print "  " kept[i]; n = 0 }
    function close_check(  i, first) {
      if (!checking) return
      checking = 0
      first = (n > of_check ? n - of_check : 0)
      if (told && told + 1 + n - first > lines) { untold++; n = 0; return }
      print "---- " check
      for (i = first; i < n; i++) print "  " substr(kept[i], 1, 1000)
      told += 1 + n - first
      n = 0
    }
    /^---- .* stdout ----$/ { close_check(); show(); inside = 1; print; next }
    /^failures:$/ { if (inside) show(); inside = 0 }
    inside { if (NF) kept[n++] = $0; next }
    /^FAIL(ED)? / { close_check(); checking = 1; check = substr($0, 1, 1000); next }
    /^(ok|SKIPPED|test) / || /^-- / || /^--- / || /^== / || /(^|: )[0-9]+ passed, [0-9]+ failed/ { close_check() }
    checking && NF { kept[n++] = $0 }
    END {
      close_check()
      if (untold) print "---- and " untold " more failed checks, in the log above"
    }' "$1"
}

passed=0 failed=0 skipped=0 ended=0
for file in "$folder"/*.count; do
  read -r p f s status seconds <"$file"
  log=${file%.count}.log
  name=$(basename "$file" .count)
  said=
  [ "$f" = 0 ] || said=$(failures "$log")
  if [ -n "$said" ]; then
    printf '%s\n' "$said"
  elif [ "$f" != 0 ] || [ "$status" != 0 ]; then
    # No test says why: the suite itself ended so, or it is none that counts, as lint.
    echo "---- $name ended with $status, its last lines:"
    tail -n 25 "$log" | sed 's/^/  /'
    [ "$f" != 0 ] || ended=$((ended + 1))
  fi
  printf '%-13s %5d passed %3d failed %3d skipped %5d s%s\n' "$name" "$p" "$f" "$s" "$seconds" "$([ "$status" = 0 ] || echo ", ended with $status")"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
rm -f "$folder"/*.count
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$ended" = 0 ] && [ "$passed" -gt 0 ]
