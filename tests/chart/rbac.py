"""Who may do what, as a table: one line per subject, place, resource and verbs."""


def table(made):
    """Sorted lines `subject place resource[names] verbs`, resolved over bindings; aggregated roles count as `users`."""
    rules, lines = {}, set()
    for document in made:
        if document["kind"] in ("Role", "ClusterRole"):
            rules[document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"]] = document["rules"]
            for label in document["metadata"]["labels"]:
                if label.startswith("rbac.authorization.k8s.io/aggregate-to-"):
                    lines.update(told("users-" + label.rsplit("-", 1)[1], "namespace", document["rules"]))
    for document in made:
        if document["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            namespace = document["metadata"].get("namespace")
            role = document["roleRef"]
            granted = rules[role["kind"], namespace if role["kind"] == "Role" else None, role["name"]]
            for subject in document["subjects"]:
                lines.update(told(subject["name"], namespace or "cluster", granted))
    return "\n".join(sorted(lines)) + "\n"


def told(subject, place, rules):
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                names = ",".join(rule.get("resourceNames", []))
                yield "%s %s %s %s%s %s" % (subject, place, group or "core", resource, "[%s]" % names if names else "",
                                            ",".join(sorted(rule["verbs"])))
