//! Name constraints (RFC 5280 section 4.2.1.10).

use std::net::IpAddr;

use crate::{Certificate, DistinguishedName, GeneralName, NameConstraints, Subtree};

/// Maximum comparisons of a name with a constraint for one chain. Two certificates of legal size can require 20 million; no real
/// pair comes near this limit.
const COMPARISONS_MAX: u32 = 250_000;

/// Number of comparisons left.
pub(super) struct ComparisonBudget(u32);

impl Default for ComparisonBudget {
    fn default() -> Self {
        Self(COMPARISONS_MAX)
    }
}

/// Error: the limit of comparisons is reached.
#[derive(Debug)]
pub(super) struct ComparisonsExhausted;

/// Returns the first name of `certificate` that violates `constraints`.
pub(super) fn find_violation(
    constraints: &NameConstraints,
    certificate: &Certificate,
    comparisons: &mut ComparisonBudget,
) -> Result<Option<String>, ComparisonsExhausted> {
    let subject =
        (!certificate.subject.is_empty()).then(|| GeneralName::Directory(certificate.subject.text.clone()));
    for name in subject.iter().chain(&certificate.subject_alt_names) {
        let cost = constraints.permitted.len() + constraints.excluded.len();
        let cost = u32::try_from(cost).map_err(|_| ComparisonsExhausted)?;
        comparisons.0 = comparisons.0.checked_sub(cost).ok_or(ComparisonsExhausted)?;
        if !passes(constraints, name) {
            return Ok(Some(name_text(name)));
        }
    }
    Ok(None)
}

fn passes(constraints: &NameConstraints, name: &GeneralName) -> bool {
    let excluded = constraints.excluded.iter().any(|subtree| match covers(subtree, name) {
        Cover::OtherKind => false,
        Cover::Outside => can_wildcard_match_base(subtree, name),
        Cover::Inside | Cover::Unknown => true,
    });
    let mut of_kind = false;
    let permitted = constraints.permitted.iter().any(|subtree| match covers(subtree, name) {
        Cover::OtherKind => false,
        Cover::Outside | Cover::Unknown => {
            of_kind = true;
            false
        }
        Cover::Inside => true,
    });
    !excluded && (permitted || !of_kind)
}

/// Relation of a name to a subtree.
enum Cover {
    /// The subtree has another kind of name, so it does not apply.
    OtherKind,
    Inside,
    Outside,
    /// The kind is the same, but the name cannot be compared. Such a name does not satisfy a permitted subtree, and is treated as
    /// excluded.
    Unknown,
}

impl From<bool> for Cover {
    fn from(inside: bool) -> Self {
        if inside { Self::Inside } else { Self::Outside }
    }
}

fn covers(subtree: &Subtree, name: &GeneralName) -> Cover {
    match (subtree, name) {
        (Subtree::Dns(base), GeneralName::Dns(host)) => {
            // A wildcard matches all names with one label before its parent. It is inside a subtree only if the parent is.
            host.strip_prefix("*.")
                .map_or_else(
                    || host_under(host, base),
                    |parent| host_under(parent, base.strip_prefix('.').unwrap_or(base)),
                )
                .into()
        }
        (Subtree::Ip(net, mask), GeneralName::Ip(address)) => in_network(*address, *net, *mask).into(),
        (Subtree::Email(base), GeneralName::Email(mailbox)) => {
            matches_mailbox_constraint(mailbox, base).into()
        }
        (Subtree::Uri(base), GeneralName::Uri(uri)) => match uri_host(uri) {
            Some(host) => matches_host_constraint(host, base).into(),
            None => Cover::Unknown,
        },
        (Subtree::Directory(base), GeneralName::Directory(text)) => {
            is_in_directory_subtree(text, base).into()
        }
        (Subtree::Ip(..), GeneralName::BadIp(_)) | (Subtree::Other, GeneralName::Other(_)) => Cover::Unknown,
        _ => Cover::OtherKind,
    }
}

/// Returns whether a wildcard that is outside a subtree can still match the base of the subtree.
fn can_wildcard_match_base(subtree: &Subtree, name: &GeneralName) -> bool {
    let (Subtree::Dns(base), GeneralName::Dns(host)) = (subtree, name) else {
        return false;
    };
    let (Some(parent), Some((_, above))) = (host.strip_prefix("*."), base.split_once('.')) else {
        return false;
    };
    above.eq_ignore_ascii_case(parent)
}

/// Returns whether a host is the base or a subdomain of it. A base with a leading dot matches subdomains only: many certificates
/// have such DNS constraints, although RFC 5280 does not define them.
fn host_under(host: &str, base: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let base = base.strip_suffix('.').unwrap_or(base);
    if base.is_empty() {
        return true;
    }
    let Some(start) = host.len().checked_sub(base.len()) else {
        return false;
    };
    let (Some(head), Some(tail)) = (host.get(..start), host.get(start..)) else {
        return false;
    };
    tail.eq_ignore_ascii_case(base)
        && (head.is_empty() || head.ends_with('.') || base.starts_with('.'))
        && !(head.is_empty() && base.starts_with('.'))
}

/// Returns whether `host` matches the base of a mail or URI constraint. A base without a leading dot matches only that host; a base
/// with a leading dot matches all hosts below it.
fn matches_host_constraint(host: &str, base: &str) -> bool {
    if base.starts_with('.') { host_under(host, base) } else { host.eq_ignore_ascii_case(base) }
}

fn matches_mailbox_constraint(mailbox: &str, base: &str) -> bool {
    let Some((local, host)) = mailbox.rsplit_once('@') else {
        return false;
    };
    match base.rsplit_once('@') {
        Some((wanted, base_host)) => wanted == local && host.eq_ignore_ascii_case(base_host),
        None => matches_host_constraint(host, base),
    }
}

/// Returns the host of a URI's authority; `None` if the URI has no authority, or its host is an IP address.
fn uri_host(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    let is_name = !host.is_empty() && !host.starts_with('[') && host.parse::<IpAddr>().is_err();
    is_name.then_some(host)
}

fn in_network(address: IpAddr, net: IpAddr, mask: IpAddr) -> bool {
    match (address, net, mask) {
        (IpAddr::V4(address), IpAddr::V4(net), IpAddr::V4(mask)) => {
            address.to_bits() & mask.to_bits() == net.to_bits() & mask.to_bits()
        }
        (IpAddr::V6(address), IpAddr::V6(net), IpAddr::V6(mask)) => {
            address.to_bits() & mask.to_bits() == net.to_bits() & mask.to_bits()
        }
        _ => false,
    }
}

/// Compares the texts of the names. The most specific part comes first, so a name in a subtree ends with the text of the base.
/// Escapes distinguish a comma in a value from a separator.
fn is_in_directory_subtree(text: &str, base: &[u8]) -> bool {
    let Ok(base) = DistinguishedName::parse(base) else {
        return false;
    };
    if base.text.is_empty() {
        return true;
    }
    let (text, base) = (text.to_ascii_lowercase(), base.text.to_ascii_lowercase());
    text.strip_suffix(&base).is_some_and(|head| head.is_empty() || ends_with_separator(head))
}

/// Returns whether the text ends with a separator between relative distinguished names, and not with an escaped comma in a value.
fn ends_with_separator(head: &str) -> bool {
    head.strip_suffix(", ").is_some_and(|name| {
        let escapes = name.bytes().rev().take_while(|b| *b == b'\\').count();
        escapes % 2 == 0
    })
}

fn name_text(name: &GeneralName) -> String {
    match name {
        GeneralName::Dns(text)
        | GeneralName::BadIp(text)
        | GeneralName::Email(text)
        | GeneralName::Uri(text)
        | GeneralName::Directory(text)
        | GeneralName::Other(text) => text.clone(),
        GeneralName::Ip(address) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::der;

    fn dns(base: &str) -> Subtree {
        Subtree::Dns(base.to_owned())
    }

    fn under(subtree: &Subtree, name: &GeneralName) -> (bool, bool) {
        let only = |permitted, excluded| passes(&NameConstraints { permitted, excluded }, name);
        (only(vec![subtree.clone()], vec![]), only(vec![], vec![subtree.clone()]))
    }

    #[test]
    fn dns_name_constraints_are_applied() {
        // Columns: base, name, passes if permitted, passes if excluded.
        let table = [
            ("a.example", "a.example", true, false),
            ("a.example", "A.Example", true, false),
            ("a.example", "b.a.example", true, false),
            ("a.example", "ba.example", false, true),
            ("a.example", "example", false, true),
            (".a.example", "b.a.example", true, false),
            (".a.example", "a.example", false, true),
            ("", "anything.example", true, false),
            ("a.example", "*.a.example", true, false),
            (".a.example", "*.a.example", true, false),
            ("b.a.example", "*.a.example", false, false),
            ("c.b.a.example", "*.a.example", false, true),
        ];
        for (base, name, permitted, excluded) in table {
            let got = under(&dns(base), &GeneralName::Dns(name.to_owned()));
            assert_eq!(got, (permitted, excluded), "{name} under {base}");
        }
    }

    #[test]
    fn email_uri_and_ip_name_constraints_are_applied() {
        let email = |text: &str| GeneralName::Email(text.to_owned());
        let uri = |text: &str| GeneralName::Uri(text.to_owned());
        let ip = |text: &str| GeneralName::Ip(text.parse().unwrap());
        let net = |net: &str, mask: &str| Subtree::Ip(net.parse().unwrap(), mask.parse().unwrap());
        let table = [
            (Subtree::Email("a.example".into()), email("x@a.example"), (true, false)),
            (Subtree::Email("a.example".into()), email("x@b.a.example"), (false, true)),
            (Subtree::Email(".a.example".into()), email("x@b.a.example"), (true, false)),
            (Subtree::Email("x@a.example".into()), email("X@a.example"), (false, true)),
            (Subtree::Uri(".a.example".into()), uri("https://b.a.example:1/x"), (true, false)),
            (Subtree::Uri("a.example".into()), uri("https://u@a.example/x"), (true, false)),
            (Subtree::Uri("a.example".into()), uri("urn:x"), (false, false)),
            (net("10.0.0.0", "255.0.0.0"), ip("10.9.8.7"), (true, false)),
            (net("10.0.0.0", "255.0.0.0"), ip("11.0.0.0"), (false, true)),
            (net("10.0.0.0", "255.0.0.0"), ip("::1"), (false, true)),
            (dns("a.example"), ip("10.0.0.1"), (true, true)),
            (Subtree::Other, GeneralName::Other("otherName".into()), (false, false)),
        ];
        for (subtree, name, want) in table {
            assert_eq!(under(&subtree, &name), want, "{name:?} under {subtree:?}");
        }
    }

    #[test]
    fn directory_name_constraints_are_applied() {
        let base = der::write(|w| {
            w.sequence(|w| {
                w.set(|w| {
                    w.sequence(|w| {
                        w.oid(&[2, 5, 4, 10]).utf8("Example");
                    });
                });
            });
        });
        let directory = Subtree::Directory(base.into());
        for (text, want) in [
            ("CN=x, O=Example", true),
            ("CN=x, O=EXAMPLE", true),
            ("O=Example", true),
            ("O=Example, C=DE", false),
            ("O=Other\\, O=Example", false),
            ("O=Other\\\\, O=Example", true),
        ] {
            let got = under(&directory, &GeneralName::Directory(text.to_owned())).0;
            assert_eq!(got, want, "{text}");
        }
    }
}
