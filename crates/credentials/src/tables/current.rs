//! Statements that read current versions, and the size limit of a response.

use serde_json::json;

use super::handle::Credentials;
use super::list::count;
use super::requester::{Requester, may};
use super::version::{CredentialRow, columns, readable, row_of};
use db::{BulkStatement, Cost, StoreError};

/// Maximum bytes of encrypted values in one response.
pub const SEALED_BYTES_MAX: i64 = 64 << 20;

/// Number of names, or versions of one name, that always fit into [`SEALED_BYTES_MAX`]: a value has at most one MiB and a few KiB.
pub const NAMES_UNBOUNDED: usize = 63;

macro_rules! current {
    ($name:literal, $sealed:literal, $lookups:literal, $ids:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT n.place, ",
            columns!($sealed),
            "\nFROM ",
            $lookups,
            "\nJOIN credential_versions v ON v.id ",
            $ids,
            " WHERE ",
            readable!("?2"),
            " AND ",
            may!("1", "n.everything", "n.actor"),
            " ORDER BY n.place, v.transitional"
        )
    };
}

macro_rules! current_or_empty {
    ($name:literal, $sealed:literal) => {
        BulkStatement {
            sqlite: current!(
                $name,
                $sealed,
                "(SELECT key AS place, value ->> 0 AS name_key, value ->> 1 AS everything, value ->> 2 AS actor FROM json_each(?1)) n
JOIN credentials c ON c.name_key = n.name_key",
                "IN (c.active_id, c.transitional_id)"
            ),
            postgres: current!(
                $name,
                $sealed,
                "(SELECT e.place - 1 AS place, e.asked ->> 0 AS name_key, (e.asked ->> 1)::bigint AS everything,
             e.asked ->> 2 AS actor
      FROM json_array_elements(?1::text::json) WITH ORDINALITY AS e (asked, place)) n
CROSS JOIN LATERAL (SELECT * FROM credentials k WHERE k.name_key = n.name_key LIMIT 1) c",
                "= ANY(ARRAY[c.active_id, c.transitional_id])"
            ),
        }
    };
}

/// The newest version of each name that is not transitional, and the transitional version. The LIMIT makes PostgreSQL use an
/// index: it treats IN over columns as an OR, and may scan a whole table that was empty at planning time.
pub(super) const CURRENT: BulkStatement = current_or_empty!("credentials_current", "v.sealed");

/// Like [`CURRENT`], for more than [`NAMES_UNBOUNDED`] names. A value is left out if it and the preceding values have more than
/// ?3 bytes in total.
pub(super) const CURRENT_BOUNDED: BulkStatement = current_or_empty!(
    "credentials_current_bounded",
    "CASE WHEN sum(length(v.sealed)) OVER (ORDER BY n.place, v.transitional) <= ?3 THEN v.sealed END"
);

/// Total size in bytes of the values that a read of the same versions would return.
pub(super) const VERSIONS_BYTES: &str = concat!(
    "-- credential_versions_octets\nSELECT CAST(COALESCE(sum(o.octets), 0) AS BIGINT) FROM (
    SELECT length(v.sealed) AS octets FROM credentials c JOIN credential_versions v ON v.credential_id = c.id
    WHERE c.name_key = ?1 AND ",
    readable!("?5"),
    " AND ",
    may!("1", "?2", "?3"),
    " ORDER BY v.id DESC LIMIT ?4) o"
);

impl Credentials<'_> {
    /// Returns the current versions of requested names (lower case), with the index of the name in the list. For each name: the
    /// newest version that is not transitional, then the transitional one, if its caller may read it. Always uses one statement.
    /// With more than [`NAMES_UNBOUNDED`] names, values beyond [`SEALED_BYTES_MAX`] bytes are left out: [`CredentialRow::sealed`]
    /// is empty.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn current(
        self,
        lookups: &[(Requester, String)],
        now_us: i64,
    ) -> Result<Vec<(usize, CredentialRow)>, StoreError> {
        let bounded = lookups.len() > NAMES_UNBOUNDED;
        let lookups = lookups.iter().map(|(requester, name)| {
            let (everything, actor) = requester.at(name);
            json!([name, i64::from(everything), actor])
        });
        let lookups = serde_json::Value::from_iter(lookups).to_string();
        let mut parameters = vec![lookups.into(), now_us.into()];
        let statement = if bounded {
            parameters.push(SEALED_BYTES_MAX.into());
            CURRENT_BOUNDED.of(self.0)
        } else {
            CURRENT.of(self.0)
        };
        let rows = self.0.rows(Cost::Point, statement, parameters).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row_of(row)?))).collect()
    }

    /// Returns the total size in bytes of the encrypted values that [`Self::versions`] would return. Reads none of them.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn versions_byte_size(
        self,
        requester: &Requester,
        name: &str,
        limit: usize,
        now_us: i64,
    ) -> Result<i64, StoreError> {
        let [everything, actor] = requester.name_access_parameters(name);
        let parameters = vec![name.into(), everything, actor, count(limit), now_us.into()];
        let rows = self.0.rows(Cost::Walk, VERSIONS_BYTES, parameters).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
    }
}
