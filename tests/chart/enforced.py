"""Stands in for a network plugin, on the test bed: the egress rules of a NetworkPolicy become rules of the node's firewall.

Fail closed: a pod that was not there when this began reaches nothing until `decide` has been told what it is. Replies pass.
"""

import subprocess

from bed import get
from harness import run

TABLE = "knack_egress"
# POD_CIDR of tests/cluster/lib/settings.sh.
PODS = "10.88.78.0/24"


def selection(selector):
    """A selector of labels, as kubectl takes it."""
    words = ["%s=%s" % pair for pair in selector.get("matchLabels", {}).items()]
    for entry in selector.get("matchExpressions", ()):
        operator = {"In": "in", "NotIn": "notin"}[entry["operator"]]
        words.append("%s %s (%s)" % (entry["key"], operator, ",".join(entry["values"])))
    return ["-l", ",".join(words)] if words else []


def addresses(peer):
    """What nft compares the destination with, for each of a rule's `to`: an address or a range, and the ranges that are not meant."""
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        return [] if ":" in block["cidr"] else [(block["cidr"], block.get("except", []))]
    found = []
    for namespace in get("namespaces", *selection(peer["namespaceSelector"]))["items"]:
        pods = get("pods", "-n", namespace["metadata"]["name"], *selection(peer.get("podSelector", {})))["items"]
        found += [(pod["status"]["podIP"], []) for pod in pods if pod["status"].get("podIP")]
    return found


class Enforced:
    """One policy of egress, for the pods of its namespace that it selects."""

    def __init__(self, policy):
        self.policy = policy
        self.namespace = policy["metadata"]["namespace"]

    def __enter__(self):
        # The address of a pod that has ended may be the next one's.
        there = {pod["status"].get("podIP") for pod in get("pods", "-A", "--field-selector=status.phase!=Succeeded,status.phase!=Failed")["items"]} - {None}
        nft("""
            table inet %(table)s {
              set decided { type ipv4_addr; elements = { %(there)s } }
              chain rules { }
              chain decide { ct state established,related accept; ip saddr != %(pods)s accept; ip saddr @decided accept; jump rules; counter drop; }
              chain forwarded { type filter hook forward priority -10; jump decide; }
              chain to_node { type filter hook input priority -10; jump decide; }
            }
        """ % {"table": TABLE, "pods": PODS, "there": ", ".join(sorted(there))})
        return self

    def __exit__(self, *_):
        subprocess.run(["nft", "delete", "table", "inet", TABLE], check=True)

    def decide(self, name):
        """Opens to a pod what the policy lets out, or everything if it does not select the pod. True if it does."""
        address = get("pod", "-n", self.namespace, name)["status"]["podIP"]
        selected = get("pods", "-n", self.namespace, *selection(self.policy["spec"]["podSelector"]))["items"]
        if name not in [pod["metadata"]["name"] for pod in selected]:
            nft("add element inet %s decided { %s }" % (TABLE, address))
            return False
        for rule in self.policy["spec"]["egress"]:
            for where, but in [found for peer in rule["to"] for found in addresses(peer)]:
                beside = " ip daddr != { %s }" % ", ".join(but) if but else ""
                for port in rule["ports"]:
                    nft("add rule inet %s rules ip saddr %s ip daddr %s%s %s dport %d accept" % (TABLE, address, where, beside, port["protocol"].lower(), port["port"]))
        return True


def nft(text):
    run(["nft", "-f", "-"], stdin=text)
