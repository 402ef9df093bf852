//! What the chart says of a component.

/// The memory limit that the chart gives a component, bytes.
pub(crate) fn memory_limit(component: &str) -> usize {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/knack/values.yaml");
    let values: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let limit = values[component]["resources"]["limits"]["memory"].as_str().unwrap();
    usize::try_from(knack_api::Quantity::parse(limit).unwrap().units()).unwrap()
}
