"""Writes of the controller to ClusterTrustBundles, and what the API server says to each: the policy controller-trustbundle.

Asked of an API server that serves the kind alone.
"""

import writes

GROUP, RESOURCE = "apis/certificates.k8s.io/v1beta1", "clustertrustbundles"
# They stand for the name that is the controller's, and for certificates of this server.
OWN, PEM = "BUNDLE", "CERTIFICATES"
ONLY = "the controller writes the ClusterTrustBundle"


def bundle(name, managed="knack", signer=None):
    spec = {"trustBundle": PEM, **({"signerName": signer} if signer else {})}
    return {"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": managed}}, "spec": spec}


# Who, what, verb, group, resource, place, name, body, a word of the refusal.
NEW = [
    (writes.CONTROLLER, "what all sidecars trust", "create", GROUP, RESOURCE, "", "", bundle(OWN), None),
    (writes.CONTROLLER, "a bundle of another name", "create", GROUP, RESOURCE, "", "", bundle("other-" + OWN), ONLY),
    (writes.CONTROLLER, "a bundle of a signer", "create", GROUP, RESOURCE, "", "", bundle("example.com:a:" + OWN, signer="example.com/a"), ONLY),
    (writes.CONTROLLER, "what all sidecars trust, without its label", "create", GROUP, RESOURCE, "", "", bundle(OWN, managed="Helm"), ONLY),
]
# Asked when the bundle is there as its own, and then as somebody else's.
STANDING = [
    (writes.CONTROLLER, "what all sidecars trust, renewed", "update", GROUP, RESOURCE, "", OWN, {"metadata": {"annotations": {"a": "b"}}}, None),
    (writes.CONTROLLER, "what all sidecars trust", "delete", GROUP, RESOURCE, "", OWN, None, ONLY),
]
FOREIGN = [
    (writes.CONTROLLER, "somebody's bundle of that name", "update", GROUP, RESOURCE, "", OWN, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "knack"}}}, ONLY),
]
