//! What stands at names now, and how much of it one answer takes.

use serde_json::json;

use super::asker::{CredentialAsker, may};
use super::handle::Credentials;
use super::list::count;
use super::version::{CredentialRow, columns, readable, row_of};
use db::{Bulk, Cost, StoreError};

/// Bytes of sealed values that one question is answered with, at most.
pub const SEALED_OCTETS_MAX: i64 = 64 << 20;

/// Names, or versions of one, whose values have less than [`SEALED_OCTETS_MAX`] together whatever they are: a value has
/// at most a MiB and some KiB.
pub const NAMES_UNBOUNDED: usize = 63;

macro_rules! current {
    ($name:literal, $sealed:literal, $asked:literal, $ids:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT n.place, ",
            columns!($sealed),
            "\nFROM ",
            $asked,
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

macro_rules! current_of {
    ($name:literal, $sealed:literal) => {
        Bulk {
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

/// Of each name that somebody asked for its newest version that is not in transition, and the one that is. PostgreSQL takes
/// IN over columns for an OR, which no index answers, and without the LIMIT may join a table that was empty when it planned
/// by reading all of it.
pub(super) const CURRENT: Bulk = current_of!("credentials_current", "v.sealed");

/// The same of more than [`NAMES_UNBOUNDED`] names: values are left out once those before have ?3 bytes together.
pub(super) const CURRENT_BOUNDED: Bulk = current_of!(
    "credentials_current_bounded",
    "CASE WHEN sum(length(v.sealed)) OVER (ORDER BY n.place, v.transitional) <= ?3 THEN v.sealed END"
);

/// How many bytes the values of as many versions have together that [`crate::Store::credential_versions`] would read.
pub(super) const VERSIONS_OCTETS: &str = concat!(
    "-- credential_versions_octets\nSELECT CAST(COALESCE(sum(o.octets), 0) AS BIGINT) FROM (
    SELECT length(v.sealed) AS octets FROM credentials c JOIN credential_versions v ON v.credential_id = c.id
    WHERE c.name_key = ?1 AND ",
    readable!("?5"),
    " AND ",
    may!("1", "?2", "?3"),
    " ORDER BY v.id DESC LIMIT ?4) o"
);

impl Credentials<'_> {
    /// What stands now at names (lower case) that somebody asks for, with the place of the name in the list: of each the
    /// newest version that is not in transition, then the one that is, if there is one and its asker may read. One
    /// statement, whatever the count of names and askers. Of more than [`NAMES_UNBOUNDED`] names those that would make it
    /// more than [`SEALED_OCTETS_MAX`] bytes come without their values: [`CredentialRow::sealed`] is empty.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn current(
        self,
        asked: &[(CredentialAsker, String)],
        now_us: i64,
    ) -> Result<Vec<(usize, CredentialRow)>, StoreError> {
        let bounded = asked.len() > NAMES_UNBOUNDED;
        let asked = asked.iter().map(|(asker, name)| {
            let (everything, actor) = asker.at(name);
            json!([name, i64::from(everything), actor])
        });
        let asked = serde_json::Value::from_iter(asked).to_string();
        let mut parameters = vec![asked.into(), now_us.into()];
        let statement = if bounded {
            parameters.push(SEALED_OCTETS_MAX.into());
            CURRENT_BOUNDED.of(self.0)
        } else {
            CURRENT.of(self.0)
        };
        let rows = self.0.rows(Cost::Point, statement, parameters).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row_of(row)?))).collect()
    }

    /// How many bytes the sealed values have together that [`Self::versions`] would answer. Reads none of them.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn versions_octets(
        self,
        asker: &CredentialAsker,
        name: &str,
        most: usize,
        now_us: i64,
    ) -> Result<i64, StoreError> {
        let [everything, actor] = asker.values_at(name);
        let parameters = vec![name.into(), everything, actor, count(most), now_us.into()];
        let rows = self.0.rows(Cost::Walk, VERSIONS_OCTETS, parameters).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
    }
}
