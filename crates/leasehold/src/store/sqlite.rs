//! SQLite.
use std::sync::Arc;

use super::Store;
use crate::{Error, Result};

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    Err(Error::Unavailable(format!("{url}: not yet")))
}
