//! Goldens of model-facing texts.
