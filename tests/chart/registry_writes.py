"""What the registry could try to write, and what its admission policies say: it reads what any program sends, and its rights reach every Skill of
a namespace. Rows as those of writes.py."""

import copy

from writes import SKILL_UID, meta, owned_by, settings, with_change

REGISTRY = "knack-registry"
SKILLS, MAPS = ("apis/knack.dev/v1alpha1", "skills", "SANDBOXES"), ("api/v1", "configmaps", "SANDBOXES")
UPLOAD = {"upload": {"configMaps": ["adder-upload-1-0123456789"], "digest": "a" * 64}}
RECORD = {"annotations": {"knack.dev/upload": "{}"}}


def uploaded(name="adder", **metadata):
    """A Skill that a program uploaded, as the registry makes it."""
    return {"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": name, **copy.deepcopy(RECORD), **metadata},
            "spec": {"source": copy.deepcopy(UPLOAD)}}


def version(name="adder-v1", of="adder", owner="weather"):
    """A version of it that is kept beside it. The rows have one Skill whose uid is known, whose name stands for that of the upload."""
    return {"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "spec": {"source": copy.deepcopy(UPLOAD)}, "metadata": {
        "name": name, "labels": {"knack.dev/upload-of": of, "knack.dev/upload-version": "1"},
        "ownerReferences": [owned_by("Skill", owner, SKILL_UID)]}}


def files(name="adder-upload-1-0123456789", label="adder", **more):
    """Files of an upload."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "data": {"SKILL.md": "x"},
            "metadata": {"name": name, "labels": {"knack.dev/upload": label}}, **more}


def applied(**metadata):
    """A Skill that somebody applied."""
    return {"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "applied", **metadata},
            "spec": {"source": {"inline": {"files": {"SKILL.md": "x"}}}}}


STANDING = [
    (*SKILLS, "uploaded", uploaded("uploaded", labels={"team": "a"}, finalizers=["example.org/stay"])),
    (*SKILLS, "applied", applied()),
    (*MAPS, "uploaded-upload-1-0123456789", files(label="uploaded")),
    (*MAPS, "of-a-person", settings("of-a-person")),
]

OTHERS = "writes Skills that were uploaded"
OWN_FIELDS = "no labels of a Skill but its own"
OF_UPLOADS = "immutable ConfigMaps of uploads"
OWNER = "owned by its Skill, and has no finalizers"

CASES = [(REGISTRY, *row) for row in [
    # Skills.
    ("an upload", "create", *SKILLS, "", uploaded(), None),
    ("a version of it", "create", *SKILLS, "", version(of="weather"), None),
    ("an upload that is suspended and has nothing yet", "create", *SKILLS, "",
     {**uploaded(), "spec": {"suspend": True, "source": {"inline": {"files": {"SKILL.md": "x"}}}}}, None),
    ("a Skill without a record", "create", *SKILLS, "", with_change(uploaded(), meta(annotations={})), OTHERS),
    ("a version of nobody", "create", *SKILLS, "", with_change(version(of="weather"), meta(ownerReferences=[])), OTHERS),
    ("a version of another Skill than its owner", "create", *SKILLS, "", version(of="adder"), OTHERS),
    ("content that no upload brought", "create", *SKILLS, "", {**uploaded(), "spec": applied()["spec"]}, "its content in spec.source.upload"),
    ("an upload's next version", "update", *SKILLS, "uploaded", {"spec": {"version": "2.0.0"}}, None),
    ("an upload, suspended", "update", *SKILLS, "uploaded", {"spec": {"suspend": True}}, None),
    ("an upload's own labels", "update", *SKILLS, "uploaded", {"metadata": {"labels": {"knack.dev/upload-version": "2"}}}, None),
    ("an upload with content from elsewhere", "update", *SKILLS, "uploaded", {"spec": {"source": {"upload": None, **applied()["spec"]["source"]}}}, "its content in spec.source.upload"),
    ("an upload without its record", "update", *SKILLS, "uploaded", {"metadata": {"annotations": {"knack.dev/upload": None}}}, OTHERS),
    ("somebody's label of an upload", "update", *SKILLS, "uploaded", {"metadata": {"labels": {"team": "b"}}}, OWN_FIELDS),
    ("somebody's label of an upload, taken away", "update", *SKILLS, "uploaded", {"metadata": {"labels": {"team": None}}}, OWN_FIELDS),
    ("a label more", "update", *SKILLS, "uploaded", {"metadata": {"labels": {"app.kubernetes.io/instance": "argo"}}}, OWN_FIELDS),
    ("somebody's finalizer of an upload, taken away", "update", *SKILLS, "uploaded", {"metadata": {"finalizers": None}}, OWN_FIELDS),
    ("another owner of an upload", "update", *SKILLS, "uploaded", {"metadata": {"ownerReferences": [owned_by("Skill", "weather", SKILL_UID)]}}, OWN_FIELDS),
    ("what somebody applied, changed", "update", *SKILLS, "applied", {"spec": {"suspend": True}}, OTHERS),
    ("what somebody applied, made an upload", "update", *SKILLS, "applied", {"metadata": RECORD, "spec": {"source": {"inline": None, **UPLOAD}}}, OTHERS),
    ("an upload, deleted", "delete", *SKILLS, "uploaded", None, None),
    ("what somebody applied, deleted", "delete", *SKILLS, "applied", None, OTHERS),
    # Their files.
    ("files of an upload", "create", *MAPS, "", files(), None),
    ("files with their owner", "create", *MAPS, "",
     with_change(files("weather-upload-1-0123456789", "weather"), lambda one: one["metadata"].update(ownerReferences=[owned_by("Skill", "weather", SKILL_UID)])), None),
    ("files that can be changed", "create", *MAPS, "", files(immutable=False), OF_UPLOADS),
    ("files without their label", "create", *MAPS, "", with_change(files(), meta(labels={})), OF_UPLOADS),
    ("files under a name that is not the Skill's", "create", *MAPS, "", files("kube-root-ca.crt"), OF_UPLOADS),
    ("files of another Skill than their owner", "create", *MAPS, "", with_change(files(), meta(ownerReferences=[owned_by("Skill", "weather", SKILL_UID)])), OWNER),
    ("files of a SkillRuntime", "create", *MAPS, "", with_change(files(), meta(ownerReferences=[owned_by("SkillRuntime", "adder", SKILL_UID)])), OWNER),
    ("files that nothing can delete", "create", *MAPS, "", with_change(files(), meta(finalizers=["example.org/stay"])), OWNER),
    ("files, relabelled", "update", *MAPS, "uploaded-upload-1-0123456789", {"metadata": {"labels": {"team": "a"}}}, "changes only the owner"),
    ("files, annotated", "update", *MAPS, "uploaded-upload-1-0123456789", {"metadata": {"annotations": {"a": "b"}}}, "changes only the owner"),
    ("files, deleted", "delete", *MAPS, "uploaded-upload-1-0123456789", None, None),
    ("somebody's ConfigMap, taken over", "update", *MAPS, "of-a-person", {"metadata": {"labels": {"knack.dev/upload": "of-a-person"}}}, OF_UPLOADS),
    ("somebody's ConfigMap, deleted", "delete", *MAPS, "of-a-person", None, OF_UPLOADS),
]]
