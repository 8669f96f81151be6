//! Public suffixes of DNS names, from the list of publicsuffix.org.
//!
//! The list is 400 KB of compiled code. These functions are not generic, so that the program contains the list only once.

/// Section of the Public Suffix List that contains a suffix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SuffixKind {
    /// Delegated by ICANN or IANA: `com`, `co.uk`.
    Icann,
    /// Submitted by its owner: `github.io`.
    Private,
    /// The name is not in the list; the suffix is its last label.
    Unlisted,
}

/// The public suffix of a DNS name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PublicSuffix<'n> {
    /// The suffix, a slice of the name.
    pub text: &'n str,
    /// Section of the list that contains the suffix.
    pub kind: SuffixKind,
}

/// Returns the public suffix of `name`, which must be lower case, in A-labels, and without a trailing dot. `None` for an empty
/// name.
#[must_use]
pub fn public_suffix(name: &str) -> Option<PublicSuffix<'_>> {
    let suffix = psl::suffix(name.as_bytes())?;
    let kind = match suffix.typ() {
        Some(psl::Type::Icann) => SuffixKind::Icann,
        Some(psl::Type::Private) => SuffixKind::Private,
        None => SuffixKind::Unlisted,
    };
    Some(PublicSuffix { text: &name[name.len() - suffix.as_bytes().len()..], kind })
}

/// Returns the public suffix of `name` and the label before it: `example.co.uk` of `a.b.example.co.uk`. `None` for a public
/// suffix itself.
#[must_use]
pub fn registered_domain(name: &str) -> Option<&str> {
    let suffix = public_suffix(name)?.text;
    let before = name.strip_suffix(suffix)?.strip_suffix('.')?;
    let start = before.rfind('.').map_or(0, |dot| dot + 1);
    (start < before.len()).then(|| &name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_suffixes_and_registered_domains_are_found() {
        for (name, suffix, kind, domain) in [
            ("a.b.example.co.uk", "co.uk", SuffixKind::Icann, Some("example.co.uk")),
            ("example.com", "com", SuffixKind::Icann, Some("example.com")),
            ("co.uk", "co.uk", SuffixKind::Icann, None),
            ("x.someone.github.io", "github.io", SuffixKind::Private, Some("someone.github.io")),
            ("db.internal-only", "internal-only", SuffixKind::Unlisted, Some("db.internal-only")),
            ("localhost", "localhost", SuffixKind::Unlisted, None),
        ] {
            assert_eq!(public_suffix(name), Some(PublicSuffix { text: suffix, kind }), "{name}");
            assert_eq!(registered_domain(name), domain, "{name}");
        }
        assert_eq!((public_suffix(""), registered_domain(".com")), (None, None));
        // Includes an exception in the list (`!city.kawasaki.jp`), and checks that names are split as by the library.
        for name in ["a.city.kawasaki.jp", "city.kawasaki.jp", "a.kawasaki.jp", "a.b.c.kawasaki.jp"] {
            assert_eq!(registered_domain(name), psl::domain_str(name), "{name}");
        }
    }
}
