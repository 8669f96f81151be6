//! Settings of the credential store.

use std::str::FromStr;

use crate::name::PermissionPath;
use crate::{CaVersions, CredentialError};

/// Retention rule for the versions of names below a path: a maximum number, a maximum age, or both. Current versions are always
/// retained.
#[derive(Clone, Debug)]
pub struct Retention {
    /// A name, or a path that covers all names below it. The longest matching path applies.
    pub path: PermissionPath,
    /// Maximum versions of a name, at least 1.
    pub versions: Option<u32>,
    /// Days after which a version that is not current is destroyed.
    pub days: Option<u32>,
}

impl FromStr for Retention {
    type Err = CredentialError;

    /// Parses `PATH COUNT`, `PATH DAYSd` or `PATH COUNT DAYSd`: `/ci/* 10`, `/* 90d`, `/team/* 20 90d`.
    fn from_str(text: &str) -> Result<Self, CredentialError> {
        let bad = || {
            CredentialError::bad(format!(
                "{text:?} is not a retention rule: write a path, then a number of versions, a number of days, or both, as \
                 in `/ci/* 10 90d`"
            ))
        };
        let mut words = text.split_whitespace();
        let path = PermissionPath::parse(words.next().ok_or_else(bad)?)?;
        let mut retention = Self { path, versions: None, days: None };
        for word in words {
            let limit = match word.strip_suffix('d') {
                Some(_) => &mut retention.days,
                None => &mut retention.versions,
            };
            let number = word.strip_suffix('d').unwrap_or(word).parse().ok().filter(|number| *number > 0);
            if limit.replace(number.ok_or_else(bad)?).is_some() {
                return Err(bad());
            }
        }
        let says = retention.versions.is_some() || retention.days.is_some();
        if says { Ok(retention) } else { Err(bad()) }
    }
}

coded::named! {
    /// When the server writes a read of a secret to the audit log.
    #[derive(Default)]
    pub enum ReadAudit: "audit mode" {
        /// Before the value is returned. While the log cannot be written, reads fail.
        #[default]
        Durable => "durable",
        /// Up to 200 ms after the value is returned. A crash loses these records, and reads continue while the log cannot be
        /// written.
        Buffered => "buffered",
    }
}

/// Settings of the credential store.
#[derive(Clone, Debug)]
pub struct CredentialsOptions {
    /// Whether a certificate's `ca` contains both versions of a CA that is being replaced.
    pub ca_versions: CaVersions,
    /// Whether certificates with keys other than RSA may be set; CredHub rejects them.
    pub any_key: bool,
    /// Minimum validity of a generated CA certificate in days, 0–[`DURATION_MAX`](crate::DURATION_MAX).
    pub ca_minimum_days: u32,
    /// Minimum validity of all other generated certificates in days, 0–[`DURATION_MAX`](crate::DURATION_MAX).
    pub leaf_minimum_days: u32,
    /// Days for which deleted or expired versions can be restored. With 0 they are destroyed immediately.
    pub undelete_days: u32,
    /// Retention rules. All versions of a name without a matching rule are retained.
    pub retention: Vec<Retention>,
    /// When the server writes a read of a secret to the audit log.
    pub read_audit: ReadAudit,
}

impl CredentialsOptions {
    /// Returns the retention rule of a name (lower case).
    #[must_use]
    pub fn retention_of(&self, name_key: &str) -> Option<&Retention> {
        let fits = self.retention.iter().filter(|retention| retention.path.covers(name_key));
        fits.max_by_key(|retention| retention.path.key().len())
    }
}

impl Default for CredentialsOptions {
    fn default() -> Self {
        Self {
            ca_versions: CaVersions::All,
            any_key: false,
            ca_minimum_days: 0,
            leaf_minimum_days: 0,
            undelete_days: 7,
            retention: Vec::new(),
            read_audit: ReadAudit::Durable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_rules_are_parsed_as_path_with_count_or_days() {
        for (text, versions, days) in
            [("/ci/* 10", Some(10), None), ("/* 90d", None, Some(90)), ("team/a 20 1d", Some(20), Some(1))]
        {
            let read: Retention = text.parse().unwrap();
            assert_eq!((read.versions, read.days), (versions, days), "{text}");
        }
        for text in
            ["", "/ci/*", "/ci/* 0", "/ci/* 0d", "/ci/* 3 4", "/ci/* d", "/ci/* 3dd", "/ci/* x", "/a//* 3"]
        {
            assert!(text.parse::<Retention>().is_err(), "{text}");
        }
    }
}
