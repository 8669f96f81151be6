//! Settings of the credential store.

use std::str::FromStr;

use crate::name::PermissionPath;
use crate::{CaVersions, CredentialError};

/// How many versions stay below a path, and how long; what is current stays in any case.
#[derive(Clone, Debug)]
pub struct Retention {
    /// A name, or all below a path; the longest that fits counts.
    pub path: PermissionPath,
    /// So many versions of a name, 1 or more.
    pub versions: Option<u32>,
    /// Days after which a version goes that is not current.
    pub days: Option<u32>,
}

impl FromStr for Retention {
    type Err = CredentialError;

    /// Reads `PATH COUNT`, `PATH DAYSd` or `PATH COUNT DAYSd`: `/ci/* 10`, `/* 90d`, `/team/* 20 90d`.
    fn from_str(text: &str) -> Result<Self, CredentialError> {
        let bad = || {
            CredentialError::bad(format!(
                "{text:?} says not which versions stay: write a path, a count of versions, days, as in `/ci/* 10 90d`"
            ))
        };
        let mut words = text.split_whitespace();
        let path = PermissionPath::parse(words.next().ok_or_else(bad)?)?;
        let mut retention = Self { path, versions: None, days: None };
        for word in words {
            let place = match word.strip_suffix('d') {
                Some(_) => &mut retention.days,
                None => &mut retention.versions,
            };
            let number = word.strip_suffix('d').unwrap_or(word).parse().ok().filter(|number| *number > 0);
            if place.replace(number.ok_or_else(bad)?).is_some() {
                return Err(bad());
            }
        }
        let says = retention.versions.is_some() || retention.days.is_some();
        if says { Ok(retention) } else { Err(bad()) }
    }
}

coded::named! {
    /// When it is in the audit log that a secret was read.
    #[derive(Default)]
    pub enum ReadAudit: "audit mode" {
        /// Before the value is answered. While the log cannot be written nothing is read.
        #[default]
        Durable => "durable",
        /// Up to 200 ms later: a crash loses the records of that time, and reads go on while the log cannot be written.
        Buffered => "buffered",
    }
}

/// How credentials are kept.
#[derive(Clone, Debug)]
pub struct CredentialsOptions {
    /// Whether a certificate's `ca` has both versions of an authority that changes.
    pub ca_versions: CaVersions,
    /// Whether certificates with other keys than RSA may be set; CredHub refuses them.
    pub any_key: bool,
    /// Days for which an authority's certificate is generated at least, 0–[`DURATION_MAX`](crate::DURATION_MAX).
    pub ca_minimum_days: u32,
    /// The same of all other certificates.
    pub leaf_minimum_days: u32,
    /// Days for which what was deleted, or has ended, can be taken back; 0: it is gone at once.
    pub undelete_days: u32,
    /// Which versions stay; without one for its name, all.
    pub retention: Vec<Retention>,
    /// When it is in the audit log that a secret was read.
    pub read_audit: ReadAudit,
}

impl CredentialsOptions {
    /// What holds for a name (lower case).
    #[must_use]
    pub fn retention_of(&self, name_key: &str) -> Option<&Retention> {
        let fits = self.retention.iter().filter(|retention| retention.path.holds(name_key));
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
    fn a_retention_is_a_path_with_a_count_or_days_or_both() {
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
