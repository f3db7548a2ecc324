//! One file for each database.

use crate::Missing;
use crate::recipe::Recipe;

mod postgres;
mod redis;

const ALL: &[&dyn Recipe] = &[&redis::Redis, &postgres::Postgres];

/// The recipe for a store URL's scheme.
pub(crate) fn of(scheme: &str) -> Result<&'static dyn Recipe, Missing> {
    ALL.iter()
        .copied()
        .find(|recipe| recipe.scheme() == scheme)
        .ok_or_else(|| Missing::Scheme(scheme.to_owned()))
}
