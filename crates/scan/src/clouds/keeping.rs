//! States in the inventory.

use std::collections::HashMap;
use std::sync::Arc;

use store::{Store, StoreError};

use super::{CloudSource, Listed, State};

/// What `sources` showed when they were last listed into this inventory, by name. A state that cannot be read costs one
/// listing in full.
///
/// # Errors
/// Those of the database.
pub async fn states_of(
    store: &Store,
    sources: &[Arc<dyn CloudSource>],
) -> Result<HashMap<String, State>, StoreError> {
    let mut all = store.source_states().await?;
    let states = sources.iter().filter_map(|source| all.remove_entry(&**source.name()));
    Ok(states.map(|(name, state)| (name, State::from_text(&state).unwrap_or_default())).collect())
}

/// Keeps the states of what was `listed`, once its observations are stored.
///
/// # Errors
/// Those of the database. What was kept stays.
pub async fn keep(store: &Store, listed: &[Listed], at_us: i64) -> Result<(), StoreError> {
    for one in listed {
        store.put_source_state(&one.source, &one.state.to_text(), at_us).await?;
    }
    Ok(())
}
