"""Indexes and a registry of images behind the certificate of a private authority: named in the status, and reached with the
chart's `caBundle`."""

import contextlib
import json
import os
import shutil
import tempfile

import builder
from bed import apply
from harness import assert_equal, kubectl
from installed import ADDRESS, NAMESPACE, NODE, SKILLS, STATE, helm_release, run_words, until
from parts import Index, identity, registry

# The content of the registry without TLS, at another port.
SEALED = NODE + ":5001"
SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  source:
    inline:
      files:
        SKILL.md: |
          ---
          name: %(name)s
          description: Says a name.
          ---
          Run scripts/name.py.
        requirements.txt: %(requirements)s
        scripts/name.py: |
          import helper
          print(helper.NAME)
"""
NOT_TRUSTED = "certificate is signed by an authority that is not trusted"


def values(index, **other):
    return {"packages.index": index.url, "packages.npmIndex": index.npm, "packages.egress[0].ports[2]": "5001", "packages.egress[0].ports[3]": str(index.port), **other}


def upgrade(other):
    # An earlier step has set the image of the runtime.
    helm_release("upgrade", other, "--force-conflicts")


def skill(name, requirements):
    apply(SKILL % {"name": name, "namespace": SKILLS, "requirements": json.dumps(requirements)})


def refused(name, state):
    found = until(name, state, part=NOT_TRUSTED)
    assert_equal((found["accepted"], found["reason"]), (False, "PackagesFailed"), "the verdict")
    if "caBundle" not in found["packages"]["message"]:
        raise AssertionError("what to do is not told: %s" % found)


@contextlib.contextmanager
def node_trusts(authority):
    """A node pulls by settings of its own container runtime."""
    hosts = os.path.join(os.environ["KNACK_BED_DIR"], "registries", SEALED)
    os.makedirs(hosts, exist_ok=True)
    with open(os.path.join(hosts, "hosts.toml"), "w", encoding="utf-8") as file:
        file.write('server = "https://%s"\nca = "%s"\n' % (SEALED, authority))
    try:
        yield
    finally:
        shutil.rmtree(hosts)


def behind_authority():
    """One after the other, since a builder asks the registry first: each is named, and then trusted."""
    with tempfile.TemporaryDirectory() as folder:
        authority, own = identity(folder, NODE)
        index = Index(NODE, builder.WHEELS, tls=own)
        with registry(SEALED, own, STATE["content"]), node_trusts(authority):
            # What they need is none of this step's.
            kubectl("delete", "skills", "--all", "-n", SKILLS)
            upgrade(values(index))
            skill("sealed-index", "helper\n")
            refused("sealed-index", "IndexUnreachable")
            base = STATE["base"].replace(ADDRESS, SEALED)
            sealed = values(index, **{"sandbox.images.python": base, "packages.repository": SEALED + "/team/environments", "packages.registryPlainHttp": "false"})
            upgrade(sealed)
            skill("sealed-registry", "helper>=2\n")
            refused("sealed-registry", "RegistryRefused")
            kubectl("create", "configmap", "corp-ca", "-n", NAMESPACE, "--from-file=ca.crt=" + authority)
            upgrade({**sealed, "caBundle.configMap.name": "corp-ca"})
            skill("trusted", "helper>=2.0\n")
            found = until("trusted", "Ready")
            assert_equal((found["accepted"], found["reason"]), (True, "Accepted"), "the verdict")
            assert_equal(found["packages"]["environment"].partition("@")[0], SEALED + "/team/environments", "where it is")
            assert_equal(run_words("trusted", ["python3", "skills/trusted/scripts/name.py"]), ["helper"], "the answer")
        index.close()


STEPS = [("what is behind a private authority is named, and reached with its certificate", behind_authority)]
