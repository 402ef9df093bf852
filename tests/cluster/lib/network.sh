# Two network namespaces: the node, and an "outside" that stands for the rest of the world, joined by a veth pair.

make_network() {
  [ -e "$NETNS" ] && return 0
  mountpoint -q /run/netns || echo /run/netns >>"$MADE"
  ip netns add "$BED"
  ip netns add "$BED-outside"
  ip -n "$BED" link add up0 type veth peer name up0 netns "$BED-outside"
  local place
  for place in "$BED" "$BED-outside"; do
    ip -n "$place" link set lo up
    ip -n "$place" link set up0 up
  done
  ip -n "$BED" addr add $NODE_IP/24 dev up0
  # Without a default route the node itself cannot reach ClusterIPs: routing comes before the Service's DNAT.
  ip -n "$BED" route add default via $OUTSIDE_IP
  ip -n "$BED-outside" addr add $OUTSIDE_IP/24 dev up0
  ip -n "$BED-outside" route add default via $NODE_IP
  nsenter --net="$NETNS" -- sysctl -qw net.ipv4.ip_forward=1
  # Absent where the module is built in and no bridge exists yet.
  nsenter --net="$NETNS" -- sysctl -qw net.bridge.bridge-nf-call-iptables=1 2>/dev/null || true
}

remove_network() {
  local place
  for place in "$BED" "$BED-outside"; do
    [ ! -e "/run/netns/$place" ] || ip netns del "$place"
  done
}
