//! Search for names that contain a text.

use super::found::{FoundCredential, found_of, unexpired};
use super::handle::Credentials;
use super::list::{count, listed};
use super::requester::{Requester, may};
use db::{BulkStatement, Cost, StoreError};

/// Maximum rows of a search that runs as a point query. A search that finds more rows is repeated as a scan, which may take
/// longer.
const FEW: usize = 64;

/// The last Unicode character. Texts with a given prefix are in the range from the prefix to the prefix with this character.
const LAST: char = '\u{10FFFF}';

/// Minimum characters that the trigram index requires.
const TRIGRAM_CHARS: usize = 3;

/// Maximum trigrams in one search: more would not reduce the matches further.
const TRIGRAMS_MAX: usize = 12;

macro_rules! rest {
    ($names:expr) => {
        concat!(
            $names,
            " AND (?5 = 0 OR c.current_not_after <= ?5) AND ",
            unexpired!("?7"),
            " AND ",
            may!("1", "?3", "?4"),
            " LIMIT ?6"
        )
    };
}

/// Names that contain a text which begins with a slash. Costs one index range, then one index probe for each name. ?1 and ?2:
/// start and end of the range of suffixes that begin with the text; ?5: latest expiry of the newest certificate, 0 for no limit.
pub(super) const WITH_PATH: BulkStatement = BulkStatement {
    sqlite: rest!(
        "-- credentials_with_path
SELECT c.name, c.current_at, c.current_not_after
FROM (SELECT DISTINCT t.credential_id AS id FROM credential_tails t WHERE t.tail >= ?1 AND t.tail < ?2) f
CROSS JOIN credentials c WHERE c.id = f.id"
    ),
    postgres: rest!(
        "-- credentials_with_path
SELECT c.name, c.current_at, c.current_not_after
FROM (SELECT DISTINCT t.credential_id AS id FROM credential_tails t WHERE t.tail >= ?1 AND t.tail < ?2) f
CROSS JOIN LATERAL (SELECT * FROM credentials k WHERE k.id = f.id LIMIT 1) c WHERE TRUE"
    ),
};

/// Names that match the LIKE pattern ?1, among the names with the trigrams ?2 (SQLite).
pub(super) const WITH_TRIGRAMS: &str = rest!(
    "-- credentials_with_trigrams
SELECT c.name, c.current_at, c.current_not_after
FROM credential_trigrams f CROSS JOIN credentials c
WHERE c.id = f.rowid AND credential_trigrams MATCH ?2 AND c.name_key LIKE ?1 ESCAPE '\\'"
);

/// Names that match the LIKE pattern ?1. PostgreSQL uses its trigram index, if it exists and the pattern has three consecutive
/// characters; otherwise it scans all names.
pub(super) const LIKE: &str = concat!(
    "-- credentials_like
SELECT c.name, c.current_at, c.current_not_after FROM credentials c
WHERE c.name_key LIKE ?1 ESCAPE '\\' AND c.deleted_at IS NULL AND (?4 = 0 OR c.current_not_after <= ?4) AND ",
    unexpired!("?6"),
    " AND ",
    may!("1", "?2", "?3"),
    " LIMIT ?5"
);

/// Limits of a search: latest expiry of the certificates, maximum number of names, and the current time.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Only names whose newest certificate expires by this time, µs since 1970-01-01 UTC.
    pub ends_by_us: Option<i64>,
    /// Maximum number of names in the result.
    pub limit: usize,
    /// The current time, µs since 1970-01-01 UTC.
    pub now_us: i64,
}

impl Credentials<'_> {
    /// Returns the names that contain a text (lower case) and that the caller may read, in no order. `%` in the text matches any
    /// sequence of characters. Uses an index if the text has three consecutive characters without `%`.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn names_containing(
        self,
        requester: &Requester,
        text: &str,
        limits: SearchLimits,
    ) -> Result<Vec<FoundCredential>, StoreError> {
        if text.len() > 1 && text.starts_with('/') && !text.contains('%') {
            return self.with_path(requester, text, limits).await;
        }
        let escaped = text.replace('\\', "\\\\").replace('_', "\\_");
        self.like(requester, &format!("%{escaped}%"), trigrams(text), limits).await
    }

    async fn with_path(
        self,
        requester: &Requester,
        text: &str,
        limits: SearchLimits,
    ) -> Result<Vec<FoundCredential>, StoreError> {
        let search = async |cost, limit| {
            let [everything, actor] = requester.listing_parameters();
            let ends = limits.ends_by_us.unwrap_or(0).into();
            let (before, now) = (format!("{text}{LAST}"), limits.now_us.into());
            let parameters =
                vec![text.into(), before.as_str().into(), everything, actor, ends, count(limit), now];
            self.0.rows(cost, WITH_PATH.of(self.0), parameters).await
        };
        let few = FEW.min(limits.limit);
        let mut rows = search(Cost::Point, few).await?;
        if rows.len() == few {
            rows = search(Cost::Walk, limits.limit).await?;
        }
        listed(requester, rows.into_iter().map(found_of), |found| &found.name)
    }

    async fn like(
        self,
        requester: &Requester,
        pattern: &str,
        trigrams: Option<String>,
        limits: SearchLimits,
    ) -> Result<Vec<FoundCredential>, StoreError> {
        let [everything, actor] = requester.listing_parameters();
        let ends = limits.ends_by_us.unwrap_or(0).into();
        let (limit, now) = (count(limits.limit), limits.now_us.into());
        let rows = match trigrams.filter(|_| !self.0.is_postgres()) {
            Some(trigrams) => {
                let parameters = vec![pattern.into(), trigrams.into(), everything, actor, ends, limit, now];
                self.0.rows(Cost::Walk, WITH_TRIGRAMS, parameters).await?
            }
            None => {
                let parameters = vec![pattern.into(), everything, actor, ends, limit, now];
                self.0.rows(Cost::Walk, LIKE, parameters).await?
            }
        };
        listed(requester, rows.into_iter().map(found_of), |found| &found.name)
    }
}

/// Returns the query for SQLite's trigram index: the trigrams of the longest part of the text without a percent sign. `None` if
/// there are none.
fn trigrams(text: &str) -> Option<String> {
    let run: Vec<char> = text.split('%').map(|run| run.chars().collect()).max_by_key(Vec::len)?;
    let quoted = |three: &[char]| format!("\"{}\"", three.iter().collect::<String>().replace('"', "\"\""));
    let windows = run.windows(TRIGRAM_CHARS);
    // Trigrams are taken from the whole text, because all names may share the same prefix.
    let step = windows.len().div_ceil(TRIGRAMS_MAX).max(1);
    let all: Vec<String> = windows.rev().step_by(step).map(quoted).collect();
    (!all.is_empty()).then(|| all.join(" AND "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_text_is_split_into_trigrams_for_full_text_search() {
        assert_eq!(trigrams("abcd").as_deref(), Some("\"bcd\" AND \"abc\""));
        assert_eq!(trigrams("ab%xyz%cd").as_deref(), Some("\"xyz\""));
        assert_eq!(trigrams("a\"b").as_deref(), Some("\"a\"\"b\""));
        assert_eq!((trigrams("ab%c"), trigrams(""), trigrams("%")), (None, None, None));
        let long = trigrams(&"abcdefgh".repeat(128)).unwrap();
        assert!(long.matches(" AND ").count() < TRIGRAMS_MAX, "{long}");
    }
}
