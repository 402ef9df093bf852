//! The definitions under `crds/` are those of the Rust types. `KNACK_UPDATE=1` writes them, as YAML in JSON's shape order.

use std::path::Path;

use knack::api::schema::definitions;

#[test]
fn checked_in_definitions_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    for definition in definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let path = folder.join(format!("{name}.yaml"));
        let text = serde_saphyr::to_string(definition).unwrap();
        if std::env::var_os("KNACK_UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            found,
            text,
            "{} is stale; run: KNACK_UPDATE=1 cargo test --test custom_resources",
            path.display()
        );
    }
}
