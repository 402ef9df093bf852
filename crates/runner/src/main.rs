//! The binary `knack-runner`.

fn main() {}
