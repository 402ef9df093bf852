//! `--ca-file` and `--ca-pem`: refused at the start where they cannot be used, and trusted where they can.

use super::program::{folder, knack};
use super::skill_files::DOCUMENT;
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
        &["skill", "diff", "skills/good", "https://127.0.0.1:9/"],
    ] {
        for (flag, value, why) in [
            ("--ca-file", "none.pem", "--ca-file none.pem: No such file"),
            ("--ca-file", "skills", "--ca-file skills: it is no file"),
            ("--ca-file", "empty.pem", "--ca-file empty.pem: it is empty"),
            (
                "--ca-file",
                "text.pem",
                "--ca-file text.pem: there is no certificate in it",
            ),
            ("--ca-pem", "hello", "--ca-pem: there is no certificate in it"),
        ] {
            let by_flag = knack(folder.path(), &[arguments, &[flag, value]].concat(), &[]).await;
            let name = format!("KNACK_{}", flag[2..].to_uppercase().replace('-', "_"));
            let by_name = knack(folder.path(), arguments, &[(&name, value)]).await;
            for output in [by_flag, by_name] {
                // Of a lock, what declares nothing needs no index.
                let said = err(&output);
                assert!(
                    !output.status.success() && (said.contains(why) || arguments[1] == "lock"),
                    "{arguments:?}: {said}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_imported_from_a_server_of_a_private_authority() {
    let server = tls::serve(Flaw::None, |_, _| tls::answer("200 OK", "", DOCUMENT.as_bytes()));
    let folder = folder(&[("ca.pem", &server.authority)]);
    let address = format!("{}/SKILL.md", server.url);
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
