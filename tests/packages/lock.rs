//! `knack skill lock` with versions of an index.

use super::index::{Index, wheel};
use super::program::{folder, knack};
use super::{BuilderFixture, open_folder_with, uv_path};

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
    let fixture = BuilderFixture::new(&index.url);
    let folder = folder(&[("skills/with/SKILL.md", SKILL), ("manifests/main.yaml", RUNTIME)]);
    let uv = uv_path();
    let store = fixture.folder.path().join("store");
    let environment = [
        ("KNACK_UV", uv.to_str().unwrap()),
        ("KNACK_PACKAGES_DIR", store.to_str().unwrap()),
        ("UV_DEFAULT_INDEX", index.url.as_str()),
        ("HOME", fixture.folder.path().to_str().unwrap()),
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
    assert!(said.contains("contain no SkillRuntime"), "{said}");
}

/// A version that came after the day is not chosen, whether the runtime or the command line names the day.
#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_a_later_day_is_chosen() {
    let files = [("good.py", "VALUE = 7\n")];
    let dated = [
        ("1.0", "2026-06-30T23:00:00Z"),
        ("2.0", "2026-07-01T23:00:00Z"),
        ("3.0", "2026-07-02T00:30:00Z"),
    ];
    let wheels = dated.map(|(version, time)| {
        let (name, bytes) = wheel("good", version, "", &files);
        (name, bytes, time)
    });
    let index = Index::serve_dated("good", wheels.to_vec()).await;
    let fixture = BuilderFixture::new(&index.url);
    let runtime = RUNTIME.replace("constraints: [\"good<2\"]", "excludeNewer: \"2026-06-30\"");
    let block =
        "# /// script\n# dependencies = [\"good\"]\n# [tool.uv]\n# exclude-newer = \"2026-07-01T23:30:00Z\"\n# ///\n";
    let folder = folder(&[
        ("skills/with/SKILL.md", SKILL),
        ("dated/SKILL.md", "---\nname: dated\ndescription: d\n---\nText.\n"),
        ("dated/run.py", block),
        ("manifests/main.yaml", &runtime),
    ]);
    let store = fixture.folder.path().join("store");
    let uv = uv_path();
    let environment = [
        ("KNACK_UV", uv.to_str().unwrap()),
        ("KNACK_PACKAGES_DIR", store.to_str().unwrap()),
        ("UV_DEFAULT_INDEX", index.url.as_str()),
        ("HOME", fixture.folder.path().to_str().unwrap()),
        ("NO_PROXY", "127.0.0.1"),
        // A day is one of UTC, wherever the person is.
        ("TZ", "Pacific/Kiritimati"),
    ];
    let run = async |arguments: &[&str]| {
        let output = knack(folder.path(), arguments, &environment).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    // Versions are chosen anew for another day.
    for (day, version) in [("2026-07-01", "2.0"), ("2026-06-30", "1.0"), ("2026-07-01", "2.0")] {
        let (code, said) = run(&["skill", "packages", "--build", "--exclude-newer", day, "skills/with"]).await;
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(&format!("good {version}")), "{day}: {said}");
    }
    // A script's own moment counts where it is the earlier one.
    for (day, version) in [(None, "2.0"), (Some("2026-06-30"), "1.0"), (Some("2026-07-02"), "2.0")] {
        let day: Vec<&str> = day.into_iter().flat_map(|day| ["--exclude-newer", day]).collect();
        let (code, said) = run(&[&["skill", "packages", "--build", "dated"], &day[..]].concat()).await;
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(&format!("good {version}")), "{day:?}: {said}");
    }
    let (code, said) = run(&["skill", "lock", "dated"]).await;
    assert_eq!(code, Some(0), "{said}");
    let written = std::fs::read_to_string(folder.path().join("dated/requirements.lock")).unwrap();
    assert!(written.contains("good==2.0 "), "{written}");
    for (arguments, version) in [
        (&["skills/with"][..], "3.0"),
        (&["skills/with", "manifests/main.yaml"], "1.0"),
        (
            &["skills/with", "manifests/main.yaml", "--exclude-newer", "2026-07-01"],
            "2.0",
        ),
    ] {
        let (code, said) = run(&[&["skill", "lock"], arguments].concat()).await;
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        let written = std::fs::read_to_string(folder.path().join("skills/with/requirements.lock")).unwrap();
        assert!(
            written.contains(&format!("good=={version} ")),
            "{arguments:?}: {written}"
        );
    }
    let (code, said) = run(&["skill", "lock", "skills/with", "--exclude-newer", "yesterday"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is not a day; write one such as 2026-07-01"), "{said}");
}

/// The lock of requirements that no Python from this one on needs has no packages, and is accepted where they are declared.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_without_packages_is_written_where_no_requirement_applies() {
    let index = Index::serve(vec![wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")])]).await;
    let fixture = BuilderFixture::new(&index.url);
    let store = fixture.folder.path().join("store");
    let skill = SKILL.replace("[good]", "[\"good; python_version < '3.5'\"]");
    let folder = folder(&[("skills/with/SKILL.md", &skill)]);
    let uv = uv_path();
    let environment = [
        ("KNACK_UV", uv.to_str().unwrap()),
        ("KNACK_PACKAGES_DIR", store.to_str().unwrap()),
        ("UV_DEFAULT_INDEX", index.url.as_str()),
        ("HOME", fixture.folder.path().to_str().unwrap()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    for (arguments, part) in [
        (&["skill", "lock", "skills/with"][..], "requirements.lock: 0 packages"),
        (&["skill", "validate", "skills/with"], "0 with errors"),
        (&["skill", "packages", "--build", "skills/with"], "with: Ready"),
    ] {
        let output = knack(folder.path(), arguments, &environment).await;
        let said = String::from_utf8(output.stdout).unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}{told}");
        assert!(said.contains(part), "{arguments:?}: {said}{told}");
    }
}

/// Of an extra that the package does not have nothing is installed: whoever declared it is told.
#[tokio::test(flavor = "multi_thread")]
async fn an_extra_that_a_package_does_not_have_is_a_warning() {
    let index = Index::serve(vec![wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")])]).await;
    let fixture = BuilderFixture::new(&index.url);
    let store = fixture.folder.path().join("store");
    let folder = folder(&[("with/SKILL.md", &SKILL.replace("[good]", "[\"good[nope]\"]"))]);
    let uv = uv_path();
    let environment = [
        ("KNACK_UV", uv.to_str().unwrap()),
        ("KNACK_PACKAGES_DIR", store.to_str().unwrap()),
        ("UV_DEFAULT_INDEX", index.url.as_str()),
        ("HOME", fixture.folder.path().to_str().unwrap()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    for arguments in [
        &["skill", "packages", "--build", "with"][..],
        &["skill", "lock", "with"],
    ] {
        let output = knack(folder.path(), arguments, &environment).await;
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {told}");
        let warning = "warning: The package `good==1.0` does not have an extra named `nope`";
        assert!(told.contains(warning), "{arguments:?}: {told}");
    }
}

/// Folders for temporary files belong to everybody, and uv takes settings from every folder above the one that it works in; the store may
/// be below such a folder, too.
#[tokio::test(flavor = "multi_thread")]
async fn settings_above_the_folder_that_uv_works_in_have_no_say_and_the_persons_own_do() {
    let files = [("good.py", "VALUE = 7\n")];
    let index = Index::serve(
        ["1.0", "2.0"]
            .map(|version| wheel("good", version, "", &files))
            .to_vec(),
    )
    .await;
    let uv = uv_path();
    let constraint = "constraint-dependencies = [\"good<2\"]\n";
    let project = format!("[project]\nname = \"x\"\nversion = \"1\"\n[tool.uv]\n{constraint}");
    for (place, text, store, version) in [
        ("shared/uv.toml", constraint, "own", "2.0"),
        ("shared/uv.toml", constraint, "shared/store", "2.0"),
        ("shared/pyproject.toml", project.as_str(), "shared/store", "2.0"),
        ("home/.config/uv/uv.toml", constraint, "own", "1.0"),
    ] {
        let folder = open_folder_with(&[
            ("skills/with/SKILL.md", SKILL),
            ("shared/x", ""),
            ("home/x", ""),
            (place, text),
        ]);
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (store, home, own, shared) = (path(store), path("home"), path("home/.config"), path("shared"));
        let environment = [
            ("KNACK_UV", uv.to_str().unwrap()),
            ("KNACK_PACKAGES_DIR", store.as_str()),
            ("UV_DEFAULT_INDEX", index.url.as_str()),
            ("HOME", home.as_str()),
            ("XDG_CONFIG_HOME", own.as_str()),
            ("TMPDIR", shared.as_str()),
            ("NO_PROXY", "127.0.0.1"),
        ];
        let output = knack(folder.path(), &["skill", "lock", "skills/with"], &environment).await;
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{place}: {told}");
        let written = std::fs::read_to_string(path("skills/with/requirements.lock")).unwrap();
        assert!(
            written.contains(&format!("good=={version} ")),
            "{place}, {store}: {written}"
        );
        assert!(
            written.starts_with("# Written by knack skill lock. Do not edit.\n"),
            "{written}"
        );
        if place.starts_with("shared/") {
            // A constraint of the person's own has no hash, and uv installs nothing by hashes beside one.
            let build = ["skill", "packages", "--build", "skills/with"];
            let output = knack(folder.path(), &build, &environment).await;
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{place}: {told}");
        }
        let left = std::fs::read_dir(&store).unwrap().filter_map(Result::ok);
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("work-"));
        assert_eq!(left.count(), 0, "{place}");
    }
}
