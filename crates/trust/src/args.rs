//! The flags of every command that connects to a server of another party.

use std::path::PathBuf;

use clap::Args;

use crate::roots::{CaError, Roots};

/// Which certificate authorities are trusted besides those of the system.
#[derive(Debug, Clone, Default, Args)]
pub struct CaArgs {
    /// File with certificate authorities (PEM) that are trusted besides those of the system, for every server but Knack's own;
    /// read once, at the start
    #[arg(long, value_name = "FILE", env = "KNACK_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// Certificate authorities (PEM) as text, trusted as those of --ca-file, where no file can be mounted
    #[arg(long, value_name = "PEM", env = "KNACK_CA_PEM")]
    ca_pem: Option<String>,
}

impl CaArgs {
    /// The authorities that the flags name. Errors: a file or a text that cannot be used, by its name.
    pub fn roots(&self) -> Result<Roots, CaError> {
        let mut roots = Roots::default();
        if let Some(file) = &self.ca_file {
            roots = roots.with_file(file)?;
        }
        if let Some(text) = &self.ca_pem {
            roots = roots.with_pem(text)?;
        }
        Ok(roots)
    }
}
