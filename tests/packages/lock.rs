//! `knack skill lock` with versions of an index.

use super::index::{Index, wheel};
use super::program::{folder, knack};
use super::{World, uv_path};

const SKILL: &str = "---\nname: with\ndescription: d\npackages: {python: [good]}\n---\nText.\n";
const RUNTIME: &str = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: main}\nspec:\n  packages: {constraints: [\"good<2\"]}\n";

#[tokio::test(flavor = "multi_thread")]
async fn chosen_versions_meet_the_constraints_of_the_runtime() {
    let files = [("good.py", "VALUE = 7\n")];
    let index = Index::serve(
        ["1.0", "2.0"]
            .map(|version| wheel("good", version, "", &files))
            .to_vec(),
    )
    .await;
    let world = World::new(&index.url);
    let folder = folder(&[("skills/with/SKILL.md", SKILL), ("manifests/main.yaml", RUNTIME)]);
    let uv = uv_path();
    let environment = [
        ("KNACK_UV", uv.to_str().unwrap()),
        ("UV_DEFAULT_INDEX", index.url.as_str()),
        ("HOME", world.folder.path().to_str().unwrap()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    let lock = async |arguments: &[&str]| {
        let output = knack(folder.path(), &[&["skill", "lock"], arguments].concat(), &environment).await;
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (arguments, version) in [
        (&["skills/with"][..], "2.0"),
        (&["skills/with", "manifests/main.yaml"], "1.0"),
        (&["skills/with", "manifests"], "1.0"),
    ] {
        assert_eq!(lock(arguments).await.0, Some(0), "{arguments:?}");
        let written = std::fs::read_to_string(folder.path().join("skills/with/requirements.lock")).unwrap();
        assert!(
            written.contains(&format!("good=={version} ")),
            "{arguments:?}: {written}"
        );
    }
    let (code, said) = lock(&["skills/with", "skills"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("hold no SkillRuntime"), "{said}");
}
