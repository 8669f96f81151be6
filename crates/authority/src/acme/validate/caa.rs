//! CAA checks: whether the owner of a domain allows this CA to issue for it (RFC 8659, RFC 8657).

use super::issue_value::IssueValue;
use super::resolver::{CaaRecord, Dns, DnsError};
use super::{Failure, ValidationRequest};
use crate::acme::options::Method;
use crate::acme::problem::Kind;

/// CAA tags in the IANA registry, which this CA either evaluates or may ignore.
const KNOWN_TAGS: [&str; 7] =
    ["issue", "issuewild", "iodef", "contactemail", "contactphone", "issuemail", "issuevmc"];

/// The CA, account and validation method to check against CAA records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaaQuery<'a> {
    pub(crate) identities: &'a [String],
    pub(crate) wildcard: bool,
    pub(crate) account_url: &'a str,
    /// Validation method; `None` without validation.
    pub(crate) method: Option<Method>,
}

/// Searches for CAA records from the name upwards and evaluates the first record set found (RFC 8659 section 3).
pub(crate) async fn check(dns: &Dns, host: &str, query: CaaQuery<'_>) -> Result<(), Failure> {
    if query.identities.is_empty() {
        return Ok(());
    }
    let mut name = host;
    loop {
        let records = dns.caa(name).await.map_err(|error| lookup_failed(name, &error))?;
        if !records.is_empty() {
            return judge(&records, query)
                .map_err(|reason| Failure::permanent(Kind::Caa, format!("CAA records of {name}: {reason}")));
        }
        match name.split_once('.') {
            Some((_, parent)) => name = parent,
            None => return Ok(()),
        }
    }
}

impl<'a> CaaQuery<'a> {
    /// Returns the check parameters for a validation.
    pub(crate) fn of(question: &'a ValidationRequest, identities: &'a [String]) -> Self {
        Self {
            identities,
            wildcard: question.wildcard,
            account_url: &question.account_url,
            method: question.method,
        }
    }
}

/// Returns the failure for a DNS error. A CA must not issue if the lookup fails; a failed lookup does not mean that no records
/// exist (RFC 8659 section 3).
fn lookup_failed(name: &str, error: &DnsError) -> Failure {
    Failure::transient(Kind::Dns, format!("CAA lookup for {name}: {error}"))
}

fn judge(records: &[CaaRecord], query: CaaQuery<'_>) -> Result<(), String> {
    if let Some(unknown) =
        records.iter().find(|record| record.critical && !KNOWN_TAGS.contains(&record.tag.as_str()))
    {
        return Err(format!("the critical property {:?} is not supported", unknown.tag));
    }
    let with = |tag: &str| records.iter().filter(|record| record.tag == tag).collect::<Vec<_>>();
    let (issue, wild) = (with("issue"), with("issuewild"));
    let deciding = if query.wildcard && !wild.is_empty() { wild } else { issue };
    if deciding.is_empty() {
        return Ok(());
    }
    let mut reason = "no record authorizes this CA".to_owned();
    for record in deciding {
        match allows(&record.value, query) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(other) => reason = other,
        }
    }
    Err(format!("{reason}; the CAA identities of this CA are {}", query.identities.join(", ")))
}

/// Returns whether one property allows the issuance. Returns an error if the property names this CA but its parameters forbid the
/// issuance.
fn allows(value: &[u8], query: CaaQuery<'_>) -> Result<bool, String> {
    let Some(value) = IssueValue::parse(value) else { return Ok(false) };
    if !query.identities.contains(&value.domain) {
        return Ok(false);
    }
    match value.single("accounturi") {
        Ok(None) => {}
        Ok(Some(account)) if account == query.account_url => {}
        Ok(Some(_)) => return Err("accounturi is the URI of another account".to_owned()),
        Err(()) => return Err("accounturi appears more than once".to_owned()),
    }
    match value.single("validationmethods") {
        Ok(None) => Ok(true),
        Ok(Some(methods)) => {
            let used = query.method.map_or("", Method::name);
            match methods.split(',').any(|method| method == used) {
                true => Ok(true),
                false => Err(format!("validationmethods does not include {used:?}")),
            }
        }
        Err(()) => Err("validationmethods appears more than once".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(critical: bool, tag: &str, value: &str) -> CaaRecord {
        CaaRecord { critical, tag: tag.to_owned(), value: value.as_bytes().to_vec() }
    }

    fn allowed(records: &[(bool, &str, &str)], wildcard: bool) -> bool {
        let records: Vec<_> =
            records.iter().map(|(critical, tag, value)| record(*critical, tag, value)).collect();
        let identities = ["ca.example".to_owned(), "other.example".to_owned()];
        let query = CaaQuery {
            identities: &identities,
            wildcard,
            account_url: "https://ca.example/acme/acct/1",
            method: Some(Method::Dns01),
        };
        judge(&records, query).is_ok()
    }

    #[test]
    fn caa_records_are_evaluated_as_in_rfc_8659_and_rfc_8657() {
        let account = "ca.example; accounturi=https://ca.example/acme/acct/1";
        // Each row: the records, whether they allow a host, whether they allow a wildcard.
        let table: &[(&[(bool, &str, &str)], bool, bool)] = &[
            (&[(false, "iodef", "mailto:a@example")], true, true),
            (&[(true, "iodef", "mailto:a@example")], true, true),
            (&[(false, "issue", "ca.example")], true, true),
            (&[(true, "issue", "CA.EXAMPLE")], true, true),
            (&[(false, "issue", "another.example"), (false, "issue", "other.example")], true, true),
            (&[(false, "issue", "another.example")], false, false),
            (&[(false, "issue", ";")], false, false),
            (&[(false, "issue", "")], false, false),
            (&[(false, "issue", "%%")], false, false),
            (&[(false, "issuewild", ";")], true, false),
            (&[(false, "issue", ";"), (false, "issuewild", "ca.example")], false, true),
            (&[(false, "issue", "ca.example"), (false, "issuewild", "another.example")], true, false),
            (&[(false, "future", "x"), (false, "issue", "ca.example")], true, true),
            (&[(true, "future", "x"), (false, "issue", "ca.example")], false, false),
            (&[(false, "issue", account)], true, true),
            (&[(false, "issue", "ca.example; accounturi=https://ca.example/acme/acct/2")], false, false),
            (&[(false, "issue", "ca.example; accounturi=a; accounturi=a")], false, false),
            (&[(false, "issue", "ca.example; validationmethods=http-01,dns-01")], true, true),
            (&[(false, "issue", "ca.example; validationmethods=http-01")], false, false),
            (&[(false, "issue", "ca.example; validationmethods=")], false, false),
            (&[(false, "issue", "ca.example; unknown=1")], true, true),
        ];
        for (records, host, wildcard) in table {
            assert_eq!((allowed(records, false), allowed(records, true)), (*host, *wildcard), "{records:?}");
        }
    }
}
