//! dns-persist-01 (draft-ietf-acme-dns-persist-02): a permanent DNS record that names the CA and the account.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::issue_value::IssueValue;
use super::resolver::Dns;
use super::{Failure, Proven, ValidationRequest};
use crate::acme::jose::sha256;
use crate::acme::problem::Kind;

/// Rules for `dns-persist-01` records: domain names of the CA, and accepted forms of account URIs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// Domain names of the CA.
    pub(crate) identities: &'a [String],
    /// Prefix of hashed account URIs (section 4.1).
    pub(crate) hash_prefix: &'a str,
    /// Whether the plain account URL is accepted, as before draft 02.
    pub(crate) plain_account: bool,
}

/// Searches for a record of this account at `_validation-persist.HOST`.
pub(crate) async fn persist(
    dns: &Dns,
    host: &str,
    question: &ValidationRequest,
    terms: Terms<'_>,
    now_us: i64,
) -> Result<Proven, Failure> {
    let name = format!("_validation-persist.{host}");
    let records = dns
        .txt(&name)
        .await
        .map_err(|error| Failure::transient(Kind::Dns, format!("TXT lookup for {name}: {error}")))?;
    let mut reason = format!("no TXT record at {name}");
    for record in &records {
        match accepts(record, host, question, terms, now_us / 1_000_000) {
            Ok(until) => {
                let mut proven = Proven::by(format!("TXT record at {name}"));
                proven.until_us = until.map(|until| until.saturating_mul(1_000_000));
                return Ok(proven);
            }
            Err(why) => {
                reason = format!("the TXT record at {name} is not valid for this authorization: {why}")
            }
        }
    }
    let kind = if records.is_empty() { Kind::Dns } else { Kind::Unauthorized };
    Err(Failure::transient(kind, reason))
}

/// Returns whether a record is valid for this account, and until when (section 4.2).
fn accepts(
    record: &[u8],
    host: &str,
    question: &ValidationRequest,
    terms: Terms<'_>,
    now: i64,
) -> Result<Option<i64>, String> {
    let Some(value) = IssueValue::parse(record) else {
        return Err("not an issue-value (RFC 8659)".to_owned());
    };
    if !terms.identities.contains(&value.domain) {
        return Err(format!("{:?} is not an identity of this CA", value.domain));
    }
    let single = |tag: &str| value.single(tag).map_err(|()| format!("{tag} appears more than once"));
    let Some(account) = single("accounturi")? else { return Err("accounturi is missing".to_owned()) };
    let hashed = || {
        question.thumbprints.iter().flat_map(|thumbprint| {
            [host, "*"].map(|domain| hashed_uri(terms.hash_prefix, domain, thumbprint, &question.account_url))
        })
    };
    let plain_account = terms.plain_account && account == question.account_url;
    if !plain_account && !hashed().any(|uri| uri == account) {
        return Err("accounturi is the URI of another account".to_owned());
    }
    let wildcard = single("policy")?.is_some_and(|policy| policy.eq_ignore_ascii_case("wildcard"));
    if question.wildcard && !wildcard {
        return Err("a wildcard requires policy=wildcard".to_owned());
    }
    let Some(until) = single("persistuntil")? else { return Ok(None) };
    let digits = !until.is_empty() && until.bytes().all(|byte| byte.is_ascii_digit());
    match until.parse::<i64>() {
        Ok(until) if digits && until >= now => Ok(Some(until)),
        Ok(_) if digits => Err(format!("persistUntil={until} is in the past")),
        _ => Err("persistUntil is not a number of seconds".to_owned()),
    }
}

/// Returns the hashed account URI (section 4.1): prefix, algorithm, and the hash of length, domain, thumbprint and account URL.
fn hashed_uri(prefix: &str, domain: &str, thumbprint: &str, account_url: &str) -> String {
    // Cannot overflow: hostnames have at most 253 bytes.
    let length = [domain.len() as u8];
    let hash = sha256(&[&length, domain.as_bytes(), thumbprint.as_bytes(), account_url.as_bytes()].concat());
    format!("{prefix}sha-256/{}", URL_SAFE_NO_PAD.encode(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "https://ca.example/account-hash/";
    const ACCOUNT: &str = "https://ca.example/acct/123";
    /// Example of RFC 7638 section 3.1.
    const THUMBPRINT: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";

    // Example of section 10.2 of the draft.
    #[test]
    fn hashed_account_uris_match_the_draft_examples() {
        let uri = |domain| hashed_uri(PREFIX, domain, THUMBPRINT, ACCOUNT);
        assert_eq!(
            uri("example.com"),
            "https://ca.example/account-hash/sha-256/5SQm7n6tPh2-PlLbCKGnViTXX5z19SCN4cPGQHSk-kw"
        );
        assert_eq!(
            uri("*"),
            "https://ca.example/account-hash/sha-256/NpDnSwUthQK8zCgFdefYxAdAVPnygMLbs9US6oO-5ug"
        );
    }

    #[test]
    fn record_is_valid_for_its_account_name_and_time() {
        let identities = ["authority.example".to_owned()];
        let terms = Terms { identities: &identities, hash_prefix: PREFIX, plain_account: true };
        let question = |wildcard| ValidationRequest {
            wildcard,
            account_url: ACCOUNT.to_owned(),
            thumbprints: vec!["newer".to_owned(), THUMBPRINT.to_owned()],
            ..ValidationRequest::empty()
        };
        let check = |record: &str, wildcard| {
            accepts(record.as_bytes(), "example.com", &question(wildcard), terms, 1_000).map_err(drop)
        };
        let hashed = hashed_uri(PREFIX, "example.com", THUMBPRINT, ACCOUNT);
        let anywhere = hashed_uri(PREFIX, "*", "newer", ACCOUNT);
        let elsewhere = hashed_uri(PREFIX, "other.example", THUMBPRINT, ACCOUNT);
        let with = |rest: &str| format!("authority.example; accounturi={hashed}{rest}");
        for (record, host, wildcard) in [
            (with(""), Ok(None), Err(())),
            (with("; policy=WildCard"), Ok(None), Ok(None)),
            (with("; policy=other; unknown=1"), Ok(None), Err(())),
            (with("; persistUntil=1000"), Ok(Some(1_000)), Err(())),
            (with("; persistUntil=999"), Err(()), Err(())),
            (with("; persistUntil=+2000"), Err(()), Err(())),
            (with("; persistUntil=soon"), Err(()), Err(())),
            (with("; policy=wildcard; policy=wildcard"), Err(()), Err(())),
            (format!("authority.example; accounturi={anywhere}"), Ok(None), Err(())),
            (format!("authority.example; accounturi={elsewhere}"), Err(()), Err(())),
            (format!("authority.example; accounturi={ACCOUNT}"), Ok(None), Err(())),
            (format!("authority.example; accounturi={ACCOUNT}4"), Err(()), Err(())),
            (format!("other.example; accounturi={hashed}"), Err(()), Err(())),
            ("authority.example".to_owned(), Err(()), Err(())),
        ] {
            assert_eq!((check(&record, false), check(&record, true)), (host, wildcard), "{record}");
        }
        let strict = Terms { plain_account: false, ..terms };
        let plain_account = format!("authority.example; accounturi={ACCOUNT}");
        assert!(accepts(plain_account.as_bytes(), "example.com", &question(false), strict, 0).is_err());
    }
}
