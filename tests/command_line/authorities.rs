//! `--ca-file` and `--ca-pem`: refused at the start where they cannot be used, and trusted where they can.

use super::program::{folder, knack};
use super::skill_files::DOCUMENT;
use super::stub_hub::authority;
use super::tls::{self, Flaw};
use super::{err, out};

/// Every command that would go on without the authorities ends, before it does anything.
#[tokio::test]
async fn a_file_that_cannot_be_used_is_refused_at_the_start() {
    let folder = folder(&[
        ("empty.pem", ""),
        ("text.pem", "hello"),
        ("skills/good/SKILL.md", DOCUMENT),
    ]);
    for arguments in [
        &["dev", "skills", "--listen", "127.0.0.1:0"][..],
        &["skill", "import", "https://127.0.0.1:9/"],
        &["skill", "lock", "skills/good"],
        &["skill", "run", "skills/good", "--tool", "x"],
    ] {
        for (flag, value, why) in [
            ("--ca-file", "none.pem", "--ca-file none.pem: No such file"),
            ("--ca-file", "empty.pem", "--ca-file empty.pem: it is empty"),
            (
                "--ca-file",
                "text.pem",
                "--ca-file text.pem: it contains no certificate",
            ),
            ("--ca-pem", "hello", "--ca-pem: it contains no certificate"),
        ] {
            let output = knack(folder.path(), &[arguments, &[flag, value]].concat(), &[]).await;
            let said = err(&output);
            assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
        }
    }
    // By their names in the environment.
    for (name, value, why) in [
        ("KNACK_CA_FILE", "empty.pem", "--ca-file empty.pem: it is empty"),
        ("KNACK_CA_PEM", "hello", "--ca-pem: it contains no certificate"),
    ] {
        let output = knack(folder.path(), &["skill", "lock", "skills/good"], &[(name, value)]).await;
        let said = err(&output);
        assert!(!output.status.success() && said.contains(why), "{name}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_imported_from_a_server_of_a_private_authority() {
    let server = tls::serve(Flaw::None, |_, _| tls::answer("200 OK", "", DOCUMENT.as_bytes()));
    let folder = folder(&[("ca.pem", &server.authority)]);
    let address = format!("{}/good/SKILL.md", server.url);
    let import =
        async |environment: &[(&str, &str)]| knack(folder.path(), &["skill", "import", &address], environment).await;
    let refused = import(&[]).await;
    assert!(!refused.status.success());
    assert!(
        err(&refused).contains("its certificate is signed by an authority that is not trusted"),
        "{}",
        err(&refused)
    );
    for named in [("KNACK_CA_FILE", "ca.pem"), ("KNACK_CA_PEM", &server.authority)] {
        let output = import(&[named]).await;
        assert!(out(&output).contains("kind: Skill"), "{named:?}: {}", err(&output));
    }
}

/// The registry's history is read by the hub's client, whose own words are of a hub.
#[tokio::test]
async fn what_is_wrong_with_a_registry_is_not_said_of_a_hub() {
    let (pem, _) = authority();
    let folder = folder(&[
        ("ca.crt", &pem),
        ("text.pem", "hello"),
        ("token", "t"),
        ("other", "a\u{1}b"),
    ]);
    for (url, token, authorities, says) in [
        ("http://127.0.0.1:1", "token", "ca.crt", "write https://host:port"),
        ("https://127.0.0.1:1", "token", "ca.crt", "no answer: "),
        (
            "https://127.0.0.1:1",
            "token",
            "text.pem",
            "the authorities contain no certificate",
        ),
        (
            "https://127.0.0.1:1",
            "other",
            "ca.crt",
            "the token contains characters",
        ),
    ] {
        let asked = [
            "history",
            "--server",
            url,
            "--token-file",
            token,
            "--ca-file",
            authorities,
        ];
        let output = knack(folder.path(), &asked, &[]).await;
        let said = err(&output);
        assert!(!output.status.success() && said.contains(says), "{url}: {said}");
        assert!(said.contains("--server: ") && !said.contains("hub"), "{said}");
    }
}
