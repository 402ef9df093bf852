//! The part of a request that an image supports, by its labels. Pure.

use knack_packages::{Declaration, State};
use serde_json::Value;

use super::image::{NODE_LABEL, PYTHON_LABEL, label_of};
use crate::packages::BuildError;

/// The Python of the builder's image, in the words of [`PYTHON_LABEL`].
pub(super) const PYTHON_VARIABLE: &str = "KNACK_SANDBOX_PYTHON";
/// The Node of the builder's image, in the words of [`NODE_LABEL`].
pub(super) const NODE_VARIABLE: &str = "KNACK_SANDBOX_NODE";

/// The packages that are installed for an image.
#[derive(Debug)]
pub(super) struct Fit {
    pub(super) declared: Declaration,
    /// The packages that are left out, for people.
    pub(super) left_out: Option<String>,
}

/// The part of a declaration that is installed for an image with this config; `own` are the builder's Python and Node.
///
/// An environment belongs to one interpreter, so packages of Python are added only to images that say they have that one. Packages
/// of Node are left out where the image has no Node: no code of its runs could use them. Errors: nothing would be left.
pub(super) fn fit(
    mut declared: Declaration,
    config: &Value,
    (python, node): (&str, &str),
    image: &str,
) -> Result<Fit, BuildError> {
    let has = |label: &str, own: &str| !own.is_empty() && label_of(config, label) == Some(own);
    let has_python = match &declared.lock {
        Some(lock) => !lock.packages().is_empty(),
        None => !declared.python.is_empty(),
    };
    let wants_node = declared.node.is_some();
    if (has_python || !wants_node) && !has(PYTHON_LABEL, python) {
        let found = label_of(config, PYTHON_LABEL).unwrap_or("no known Python");
        let text = format!(
            "packages are built for {python:?}, but the sandbox image {image} has {found} (label {PYTHON_LABEL}); use \
             sandbox-python of this release, or an image that has the packages"
        );
        return Err(BuildError::new(State::PackagesOff, text));
    }
    if !wants_node || has(NODE_LABEL, node) {
        return Ok(Fit {
            declared,
            left_out: None,
        });
    }
    let found = label_of(config, NODE_LABEL).unwrap_or("no known Node");
    if !has_python {
        let text = format!(
            "packages of Node are built for {node:?}, but the sandbox image has {found} (label {NODE_LABEL}); use sandbox-node or \
             sandbox-office of this release, or an image that has the packages, instead of {image}"
        );
        return Err(BuildError::new(State::PackagesOff, text));
    }
    declared.node = None;
    Ok(Fit {
        declared,
        left_out: Some(format!(
            "without packages of Node, since the sandbox image has {found} (label {NODE_LABEL})"
        )),
    })
}

#[cfg(test)]
mod tests {
    use knack_packages::stated;
    use knack_skill::model::SkillFile;
    use serde_json::json;

    use super::*;

    fn declared(files: &[(&str, &str)]) -> Declaration {
        let file = |text: &str| SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), file(text)));
        stated(&files.collect(), None)
    }

    #[test]
    fn an_image_gets_what_its_labels_say_that_it_can_run() {
        let lock = json!({"lockfileVersion": 3, "packages": {"node_modules/a": {
            "version": "1.0.0", "integrity": format!("sha512-{}==", "a".repeat(86))}}})
        .to_string();
        let python = [("requirements.txt", "six")];
        let node = [("package-lock.json", lock.as_str())];
        let both = [python[0], node[0]];
        let (py, js) = ((PYTHON_LABEL, "python3.11-debian-12"), (NODE_LABEL, "debian-12"));
        for (what, files, labels, gives) in [
            ("sandbox-python", &python[..], &[py][..], Ok((true, false, false))),
            ("sandbox-python, Node alone", &node, &[py], Err(NODE_LABEL)),
            ("sandbox-python, both", &both, &[py], Ok((true, false, true))),
            ("sandbox-node", &node, &[js], Ok((false, true, false))),
            ("sandbox-node, both", &both, &[js], Err(PYTHON_LABEL)),
            ("sandbox-office, both", &both, &[py, js], Ok((true, true, false))),
            ("an image of others", &node, &[], Err("no known Node")),
            (
                "another distribution",
                &node,
                &[(NODE_LABEL, "debian-13")],
                Err("debian-13"),
            ),
            (
                "another Python",
                &python,
                &[(PYTHON_LABEL, "python3.13-debian-13"), js],
                Err("python3.13-debian-13"),
            ),
        ] {
            let labels: serde_json::Map<String, Value> = labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            let config = json!({"config": {"Labels": labels}});
            let found = fit(declared(files), &config, (py.1, js.1), "r.io/image@sha256:1");
            match (found, gives) {
                (Ok(fit), Ok(gives)) => {
                    let has = (
                        !fit.declared.python.is_empty(),
                        fit.declared.node.is_some(),
                        fit.left_out.is_some(),
                    );
                    assert_eq!(has, gives, "{what}");
                }
                (Err(error), Err(part)) => {
                    assert_eq!(error.state, State::PackagesOff, "{what}");
                    assert!(
                        error.text.contains(part) && error.text.contains("r.io/image"),
                        "{what}: {error}"
                    );
                }
                (found, gives) => panic!("{what}: {found:?}, not {gives:?}"),
            }
            // A builder that does not know what it is for adds nothing.
            assert!(fit(declared(files), &config, ("", ""), "i").is_err(), "{what}");
        }
    }
}
