//! Private suffixes: domain names that count as public suffixes within the organization.

use x509::GeneralName;

use super::IssueError;
use crate::names::NameRefusal;

/// Rejects names that equal a private suffix, and wildcards directly below one, as for public suffixes.
pub(super) fn check(names: &[GeneralName], suffixes: &[String]) -> Result<(), IssueError> {
    let whole = |name: &&GeneralName| match name {
        GeneralName::Dns(text) => is_whole(text, suffixes),
        _ => false,
    };
    let refused = |name: &GeneralName| NameRefusal {
        name: Some(name.clone()),
        reason: "this is a private suffix, a domain shared by many owners (authority.private_suffixes)"
            .to_owned(),
    };
    let refusals: Vec<NameRefusal> = names.iter().filter(whole).map(refused).collect();
    if refusals.is_empty() { Ok(()) } else { Err(IssueError::Names(refusals)) }
}

/// Returns whether a name is one of the suffixes or a wildcard directly below one.
pub(crate) fn is_whole(name: &str, suffixes: &[String]) -> bool {
    let host = name.strip_prefix("*.").unwrap_or(name);
    suffixes.iter().any(|suffix| suffix.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_private_suffixes_and_their_wildcards_are_detected() {
        let suffixes = ["corp".to_owned(), "k8s.corp".to_owned()];
        for (name, whole) in [
            ("corp", true),
            ("Corp", true),
            ("*.corp", true),
            ("k8s.corp", true),
            ("*.k8s.corp", true),
            ("a.corp", false),
            ("*.a.corp", false),
            ("a.k8s.corp", false),
            ("xcorp", false),
            ("corp.example", false),
        ] {
            assert_eq!(is_whole(name, &suffixes), whole, "{name}");
            let outcome = check(&[GeneralName::Dns(name.to_owned())], &suffixes);
            assert_eq!(outcome.is_err(), whole, "{name}");
            assert!(check(&[GeneralName::Dns(name.to_owned())], &[]).is_ok());
        }
    }
}
