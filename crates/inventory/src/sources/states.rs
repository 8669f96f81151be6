//! States of sources in the inventory, and the tags of their certificates.

use std::collections::HashMap;
use std::sync::Arc;

use clouds::{CloudSource, Listed, State};
use futures_util::FutureExt;
use store::{Store, StoreError};

use crate::ownership::Rules;
use crate::tables;
use crate::tables::kept_tags::{TagsRow, put_resource_tags};
use crate::tables::ownership::note_ownership_changed;

/// Maximum resources whose tags are written in one transaction.
const TAGGED_AT_ONCE: usize = 500;

/// Returns a map from the names of the `sources` to their states after the last listing into this inventory. An unreadable state
/// causes one full listing.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn source_states(
    store: &Store,
    sources: &[Arc<dyn CloudSource>],
) -> Result<HashMap<String, State>, StoreError> {
    let mut all = tables::Sources::of(store).all().await?;
    let states = sources.iter().filter_map(|source| all.remove_entry(&**source.name()));
    Ok(states.map(|(name, state)| (name, State::from_text(&state).unwrap_or_default())).collect())
}

/// Stores the states and changed tags of `listed` sources; call it after their observations are stored. If tags that ownership
/// rules use have changed for the same certificate, watches send notifications again with the new owner.
///
/// # Errors
/// Database errors. What was already stored remains.
#[crate::boxed]
pub async fn keep(store: &Store, listed: &[Listed], at_us: i64) -> Result<(), StoreError> {
    let tagged = listed.iter().flat_map(|one| &one.tagged);
    let retagged: Vec<_> = tagged.filter_map(|one| Some((one.before.as_ref()?, &one.tags))).collect();
    let another = !retagged.is_empty() && Rules::read(store).await?.uses_differing_tag(retagged);
    for one in listed {
        store_tags(store, one).await?;
    }
    if another {
        let noting = store.write("tags_changed", move |tx| note_ownership_changed(tx, at_us).boxed());
        noting.await?;
    }
    // The states are stored last: after a failure everything is repeated.
    for one in listed {
        tables::Sources::of(store).put(&one.source, &one.state.to_text(), at_us).await?;
    }
    Ok(())
}

async fn store_tags(store: &Store, listed: &Listed) -> Result<(), StoreError> {
    let tagged = listed.tagged.iter().map(|tagged| TagsRow {
        protocol: tagged.resource.store.name().to_owned(),
        host: tagged.resource.name.to_string(),
        sha256: tagged.leaf.map(|leaf| *leaf.as_bytes()),
        tags: (!tagged.tags.is_empty()).then(|| serde_json::to_string(&tagged.tags).unwrap_or_default()),
    });
    let removed = listed.removed.iter().map(|resource| TagsRow {
        protocol: resource.store.name().to_owned(),
        host: resource.name.to_string(),
        sha256: None,
        tags: None,
    });
    let all: Vec<TagsRow> = tagged.chain(removed).collect();
    for some in all.chunks(TAGGED_AT_ONCE) {
        let some = some.to_vec();
        store.write("kept_tags", move |tx| put_resource_tags(tx, some).boxed()).await?;
    }
    Ok(())
}
