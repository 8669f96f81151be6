//! States of certificate sources at their last listing, and the unchanged certificates.

use std::collections::HashMap;
use std::sync::Arc;

use db::{Cost, StoreError, Value};

store::handle! {
    /// Table of certificate sources, such as cloud accounts, with the state of each at its last listing.
    Sources
}

/// Number of certificates read by one statement. A shorter list repeats its last element, so that one prepared statement serves
/// all lengths.
const DERS_AT_ONCE: usize = 64;
/// Maximum sources: accounts, subscriptions, projects and clusters.
const SOURCES_MAX: i64 = 10_000;

const STATE_PUT: &str = "-- source_state_put
INSERT INTO source_states (source, state, updated_at) VALUES (?1, ?2, ?3)
ON CONFLICT (source) DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at
WHERE source_states.updated_at <= excluded.updated_at";

const STATES: &str = "-- source_states
SELECT source, state FROM source_states ORDER BY source LIMIT ?1";

const STATE: &str = "-- source_state
SELECT state FROM source_states WHERE source = ?1";

const STATE_DELETE: &str = "-- source_state_delete
DELETE FROM source_states WHERE source = ?1";

pub(crate) const ALL: &[&str] = &[STATE_PUT, STATES, STATE, STATE_DELETE];

fn ders() -> String {
    let marks: Vec<String> = (1..=DERS_AT_ONCE).map(|n| format!("?{n}")).collect();
    format!(
        "-- ders\nSELECT c.sha256, d.der FROM certificates c JOIN certificate_ders d ON d.certificate_id = c.id \
         WHERE c.sha256 IN ({})",
        marks.join(", ")
    )
}

pub(crate) fn composed() -> Vec<String> {
    vec![ders()]
}

impl Sources<'_> {
    /// Stores the state of a source, unless a later one is already stored. Call it after the observations are stored.
    ///
    /// # Errors
    /// Database errors.
    pub async fn put(self, source: &str, state: &str, at_us: i64) -> Result<(), StoreError> {
        self.0.execute(STATE_PUT, vec![source.into(), state.into(), at_us.into()]).await.map(drop)
    }

    /// Returns the state of a source at its last listing.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, source: &str) -> Result<Option<String>, StoreError> {
        self.0.row(STATE, vec![source.into()]).await?.map(|mut row| row.text()).transpose()
    }

    /// Returns a map from source names to states, for all sources; ten thousand at most.
    ///
    /// # Errors
    /// Database errors.
    pub async fn all(self) -> Result<HashMap<String, String>, StoreError> {
        let rows = self.0.rows(Cost::Walk, STATES, vec![SOURCES_MAX.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
    }

    /// Deletes the state of a source, so that the next listing is full.
    ///
    /// # Errors
    /// Database errors.
    pub async fn delete(self, source: &str) -> Result<(), StoreError> {
        self.0.execute(STATE_DELETE, vec![source.into()]).await.map(drop)
    }

    /// Returns the certificates (DER) with these SHA-256 fingerprints. Certificates that are not in the inventory are missing.
    /// Sends one statement for every 64 fingerprints.
    ///
    /// # Errors
    /// Database errors.
    pub async fn ders(self, wanted: &[[u8; 32]]) -> Result<HashMap<[u8; 32], Arc<[u8]>>, StoreError> {
        let statement = ders();
        let mut found = HashMap::with_capacity(wanted.len());
        for some in wanted.chunks(DERS_AT_ONCE) {
            let padded = some.iter().chain(std::iter::repeat(&some[some.len() - 1])).take(DERS_AT_ONCE);
            let parameters = padded.map(|hash| Value::Blob(hash.to_vec())).collect();
            for mut row in self.0.rows(Cost::Point, &statement, parameters).await? {
                found.insert(row.hash()?, Arc::from(row.blob()?));
            }
        }
        Ok(found)
    }
}
