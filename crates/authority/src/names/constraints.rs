//! Name constraints of the CAs in the chain (RFC 5280 section 4.2.1.10). Clients reject a certificate that violates them, so it is
//! not issued.

use std::net::IpAddr;

use x509::der::Reader;
use x509::{DistinguishedName, GeneralName, NameConstraints, Subtree};

use super::dns::{DnsRule, SuffixRule};
use super::mailbox::EmailRule;

/// Returns why a certificate with this subject and these names would violate the constraints; `None` if it would not.
pub(crate) fn broken(
    constraints: &NameConstraints,
    subject: &DistinguishedName,
    names: &[GeneralName],
) -> Option<(Option<GeneralName>, String)> {
    let violation = |name: &GeneralName| match judge(constraints, |subtree| cover(subtree, name)) {
        true => None,
        false => Some((Some(name.clone()), "outside the name constraints of the issuing CA".to_owned())),
    };
    if let Some(broken) = names.iter().find_map(violation) {
        return Some(broken);
    }
    let subject_passes = subject.is_empty() || judge(constraints, |subtree| directory(subtree, subject));
    (!subject_passes)
        .then(|| (None, "the subject is outside the name constraints of the issuing CA".to_owned()))
}

/// Relation of a subtree to a name. `whole`: the subtree contains all hosts that the name covers. `part`: the subtree contains at
/// least one of these hosts. The two differ only for wildcards.
#[derive(Clone, Copy)]
struct Cover {
    whole: bool,
    part: bool,
}

/// Returns whether the constraints allow a name. `cover` returns `None` for a subtree of another kind of name. No excluded subtree
/// may contain a part of the name. If permitted subtrees of the same kind exist, one of them must contain all of it.
fn judge(constraints: &NameConstraints, cover: impl Fn(&Subtree) -> Option<Cover>) -> bool {
    let excluded = constraints.excluded.iter().filter_map(&cover).any(|cover| cover.part);
    let mut of_kind = constraints.permitted.iter().filter_map(&cover).peekable();
    !excluded && (of_kind.peek().is_none() || of_kind.any(|cover| cover.whole))
}

fn cover(subtree: &Subtree, name: &GeneralName) -> Option<Cover> {
    let both = |holds: bool| Some(Cover { whole: holds, part: holds });
    match (subtree, name) {
        (Subtree::Dns(base), GeneralName::Dns(name)) => {
            let rule = subtree_rule(base);
            Some(Cover { whole: rule.allows(name), part: rule.denies(name) })
        }
        (Subtree::Ip(net, mask), GeneralName::Ip(address)) => both(in_network(*net, *mask, *address)),
        (Subtree::Email(base), GeneralName::Email(name)) => {
            let host = name.rsplit_once('@').map_or("", |(_, host)| host);
            // An invalid rule permits nothing and excludes everything.
            match EmailRule::parse(base) {
                Ok(rule) => both(rule.allows(name, host)),
                Err(_) => Some(Cover { whole: false, part: true }),
            }
        }
        (Subtree::Uri(base), GeneralName::Uri(name)) => {
            let host = host_of(name);
            let holds = match base.strip_prefix('.') {
                Some(domain) => {
                    host.strip_suffix(domain).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
                }
                None => host == base.to_ascii_lowercase(),
            };
            both(holds)
        }
        // An unsupported kind of subtree may apply to any kind of name.
        (Subtree::Other, _) => Some(Cover { whole: false, part: true }),
        _ => None,
    }
}

/// Returns a rule for a host and all its subdomains, including wildcards. If `base` begins with a dot, the rule matches only the
/// subdomains.
fn subtree_rule(base: &str) -> DnsRule {
    let base = base.to_ascii_lowercase();
    DnsRule::Suffix(SuffixRule::wide(base.trim_start_matches('.').to_owned(), !base.starts_with('.')))
}

fn in_network(net: IpAddr, mask: IpAddr, address: IpAddr) -> bool {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (net, mask, address) = (octets(net), octets(mask), octets(address));
    net.len() == address.len()
        && mask.len() == address.len()
        && address.iter().zip(&mask).zip(&net).all(|((octet, mask), net)| octet & mask == net & mask)
}

fn host_of(uri: &str) -> String {
    let authority = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.split(':').next().unwrap_or("").to_ascii_lowercase()
}

/// Returns the relation of a directory subtree to a subject. The subject is in the subtree if its first relative names equal the
/// relative names of the base. Returns `None` for other kinds of subtrees.
fn directory(subtree: &Subtree, subject: &DistinguishedName) -> Option<Cover> {
    let Subtree::Directory(base) = subtree else { return None };
    let parts = |der: &[u8]| -> Vec<Vec<u8>> {
        let sets =
            Reader::new(der).sequence().map(|sets| sets.flatten().map(|set| set.whole.to_vec()).collect());
        sets.unwrap_or_default()
    };
    let holds = parts(&subject.der).starts_with(&parts(base));
    Some(Cover { whole: holds, part: holds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_constraints_are_applied_for_each_name_type() {
        let dns = |text: &str| Subtree::Dns(text.to_owned());
        let named = |text: &str| GeneralName::parse(text).unwrap();
        let directory = |text: &str| Subtree::Directory(DistinguishedName::from_text(text).unwrap().der);
        let network = || Subtree::Ip("10.0.0.0".parse().unwrap(), "255.0.0.0".parse().unwrap());
        let table: Vec<(Vec<Subtree>, Vec<Subtree>, &str, bool)> = vec![
            (vec![dns("a.example")], vec![], "a.example", true),
            (vec![dns("a.example")], vec![], "x.a.example", true),
            (vec![dns("A.example")], vec![], "*.a.example", true),
            (vec![dns(".a.example")], vec![], "a.example", false),
            (vec![dns("a.example")], vec![], "xa.example", false),
            (vec![dns("x.a.example")], vec![], "*.a.example", false),
            (vec![], vec![dns("x.a.example")], "*.a.example", false),
            (vec![], vec![dns("x.a.example")], "y.a.example", true),
            (vec![dns("")], vec![], "a.example", true),
            (vec![dns("a.example")], vec![], "10.0.0.1", true),
            (vec![network()], vec![], "10.0.0.1", true),
            (vec![network()], vec![], "11.0.0.1", false),
            (vec![network()], vec![], "2001:db8::1", false),
            (vec![], vec![network()], "10.0.0.1", false),
            (vec![Subtree::Email("a.example".into())], vec![], "me@a.example", true),
            (vec![Subtree::Email("a.example".into())], vec![], "me@b.example", false),
            (vec![Subtree::Uri(".a.example".into())], vec![], "spiffe://x.a.example/y", true),
            (vec![Subtree::Uri(".a.example".into())], vec![], "spiffe://a.example/y", false),
            (vec![Subtree::Uri("a.example".into())], vec![], "https://u@a.example:1/y", true),
            (vec![Subtree::Other], vec![], "a.example", false),
            (vec![directory("O=Example")], vec![], "a.example", true),
        ];
        let subject = DistinguishedName::from_text("CN=a, O=Example").unwrap();
        for (permitted, excluded, name, passes) in table {
            let constraints = NameConstraints { permitted, excluded };
            let names = [named(name)];
            assert_eq!(broken(&constraints, &subject, &names).is_none(), passes, "{constraints:?} {name}");
        }
        let constraints = NameConstraints { permitted: vec![directory("O=Other")], excluded: vec![] };
        assert!(broken(&constraints, &subject, &[]).is_some());
        assert!(broken(&constraints, &DistinguishedName::empty(), &[]).is_none());
    }
}
