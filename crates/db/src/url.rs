//! URLs of databases.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::StoreError;

/// URL of a database: `postgres://…`, `sqlite:PATH`, or a plain path to an SQLite file.
///
/// `Display` and `Debug` never show a password.
#[derive(Clone, Eq, PartialEq)]
pub struct StoreUrl(pub(crate) Location);

#[derive(Clone, Eq, PartialEq)]
pub(crate) enum Location {
    Sqlite(PathBuf),
    Postgres(String),
}

impl StoreUrl {
    /// Returns the URL of an SQLite file.
    #[must_use]
    pub fn sqlite(path: impl AsRef<Path>) -> Self {
        Self(Location::Sqlite(path.as_ref().to_path_buf()))
    }

    /// Returns the path of the file for SQLite.
    #[must_use]
    pub fn sqlite_path(&self) -> Option<&Path> {
        match &self.0 {
            Location::Sqlite(path) => Some(path),
            Location::Postgres(_) => None,
        }
    }

    /// Returns whether the database is PostgreSQL.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self.0, Location::Postgres(_))
    }
}

impl FromStr for StoreUrl {
    type Err = StoreError;

    /// # Errors
    /// [`StoreError::Url`] when the text is empty or has a scheme other than `postgres`, `postgresql` and `sqlite`.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self(Location::Postgres(text.to_owned())));
        }
        let path = match text.strip_prefix("sqlite:") {
            // sqlite:///abs and sqlite://rel are common spellings.
            Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
            None => text,
        };
        let refuse =
            |reason: &str| StoreError::Url { text: without_password(text), reason: reason.to_owned() };
        if path.is_empty() {
            return Err(refuse(
                "the address names no file: give a path, sqlite:PATH or postgres://USER@HOST/DATABASE",
            ));
        }
        if path.contains("://") {
            return Err(refuse("only postgres://, sqlite: and plain paths are supported"));
        }
        if path.starts_with(":memory:") {
            return Err(refuse("an in-memory database loses its data when the process ends: give a file"));
        }
        Ok(Self(Location::Sqlite(PathBuf::from(path))))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Location::Sqlite(path) => write!(f, "{}", path.display()),
            Location::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// Removes both secrets of `postgres://user:secret@host/db?password=secret`.
fn without_password(url: &str) -> String {
    let (before_query, query) = url.split_once('?').map_or((url, None), |(a, b)| (a, Some(b)));
    let mut redacted = match (before_query.find("://"), before_query.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            let user = before_query[scheme + 3..at].split(':').next().unwrap_or_default();
            format!("{}://{user}{}", &before_query[..scheme], &before_query[at..])
        }
        _ => before_query.to_owned(),
    };
    if let Some(query) = query {
        let remaining: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("password=")).collect();
        if !remaining.is_empty() {
            redacted.push('?');
            redacted.push_str(&remaining.join("&"));
        }
    }
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_urls_are_parsed_as_server_or_file_and_hide_passwords() {
        for (text, redacted) in [
            ("inventory.db", "inventory.db"),
            ("/var/lib/bulla/inventory.db", "/var/lib/bulla/inventory.db"),
            ("sqlite:a/b.db", "a/b.db"),
            ("sqlite:///abs/b.db", "/abs/b.db"),
            ("postgres://u:secret@h:5/d", "postgres://u@h:5/d"),
            ("postgres://u:se@cret@h/d?sslmode=require&password=secret", "postgres://u@h/d?sslmode=require"),
            ("postgresql:///d?host=/run/pg", "postgresql:///d?host=/run/pg"),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), redacted, "{text}");
            assert!(!format!("{url:?}").contains("secret"));
        }
    }

    #[test]
    fn invalid_store_urls_are_rejected_without_revealing_the_password() {
        for text in ["", "sqlite:", "mysql://u:secret@h/d", ":memory:"] {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
