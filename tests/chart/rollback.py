"""A rollback of a release to a revision that has no SkillRuntime."""

from bed import get, make_namespaces, remove_namespaces
from harness import CHART, assert_equal, helm


def rollback(cluster):
    """A rollback to a revision without the SkillRuntime leaves the object where it is. Such is the first revision of an installation
    that brings the definitions, where a hook makes the object; here the definitions are there, and a value leaves it out."""
    release, place, sandboxes = "rolled", cluster.NAMESPACE + "-rolled", cluster.SANDBOXES + "-rolled"
    flags = ["--namespace", place, "--set", "crds.enabled=false,watchNamespaces={%s},controller.replicas=0,hub.replicas=0,gateway.enabled=false,"
             "injection.delivery=None,defaultRuntime.namespace=%s,defaultRuntime.createNamespace=false" % (sandboxes, sandboxes)]

    def runtime():
        made = get("skillruntime", "-n", sandboxes, "default")["metadata"]
        return made["uid"], "deletionTimestamp" in made

    make_namespaces(place, sandboxes)
    try:
        helm("install", release, CHART, *flags, "--set", "defaultRuntime.enabled=false")
        helm("upgrade", release, CHART, *flags)
        before = runtime()
        helm("rollback", release, "1", "--namespace", place)
        assert_equal("kind: SkillRuntime" in helm("get", "manifest", release, "--namespace", place), False, "the runtime in the release that was rolled back")
        assert_equal(runtime(), before, "the runtime after the rollback")
        # The next upgrade takes the object into the release again.
        helm("upgrade", release, CHART, *flags)
        assert_equal(runtime(), before, "the runtime after the upgrade")
        helm("uninstall", release, "--namespace", place, "--wait", "--timeout", "800s")
        assert_equal(runtime(), before, "the runtime in a namespace that the release did not create, after the end of the release")
    finally:
        helm("uninstall", release, "--namespace", place, "--ignore-not-found", expect=None)
        remove_namespaces(place, sandboxes)


def tests(report, cluster):
    report.check("helm rollback to a revision without the SkillRuntime", lambda: rollback(cluster))
