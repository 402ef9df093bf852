#!/usr/bin/env bash
# runc_without_landlock.sh: runc for containers in which the kernel has no Landlock: its system calls are ENOSYS, as where it is
# not built in. containerd calls it for pods of RuntimeClass no-landlock.
set -euo pipefail
bundle=
for ((at = 1; at < $#; at++)); do
  [ "${!at}" != --bundle ] || { next=$((at + 1)) && bundle=${!next}; }
done
if [ -n "$bundle" ]; then
  config=$bundle/config.json
  jq '["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"] as $landlock
    | .linux.seccomp |= ((. // {defaultAction: "SCMP_ACT_ALLOW"})
      | .syscalls = ([.syscalls[]? | .names -= $landlock | select(.names != [])]
        + [{names: $landlock, action: "SCMP_ACT_ERRNO", errnoRet: 38}]))' "$config" >"$config.next"
  mv "$config.next" "$config"
fi
exec runc "$@"
