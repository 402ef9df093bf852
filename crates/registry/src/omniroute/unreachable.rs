//! The refusal of a request for which a catalog did not do what it should.

use crate::answer::{Refusal, RefusalKind};
use crate::catalogs::{Catalog, WebError};

/// 502. The reason is in the log alone: it may name addresses of the inside.
pub(super) fn unreachable(catalog: Catalog, error: &WebError) -> Refusal {
    tracing::warn!(catalog = catalog.word(), %error, "a catalog of skills did not answer");
    let text = format!(
        "The catalog {} did not answer as expected; the log of the registry has the cause.",
        catalog.word()
    );
    Refusal::new(RefusalKind::BadGateway, "", text)
}
