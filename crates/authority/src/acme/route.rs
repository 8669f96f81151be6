//! Mapping of URL paths to resources.

use uuid::Uuid;

use super::options::Method;
use crate::operation::{AccessRule, Operation};

/// Path prefix of all ACME resources.
pub(crate) const PREFIX: &str = "/acme/";

/// An ACME resource, identified by its URL path. Directories, `new-account`, `new-order` and `new-authz` belong to a profile. All
/// other resources have one path, independent of the profile.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Route<'p> {
    /// `None` for the default profile.
    Directory(Option<&'p str>),
    NewNonce,
    NewAccount(Option<&'p str>),
    NewOrder(Option<&'p str>),
    NewAuthorization(Option<&'p str>),
    RevokeCertificate,
    KeyChange,
    RenewalInfo(&'p str),
    Account(Uuid),
    Orders(Uuid),
    Order(Uuid),
    Finalize(Uuid),
    Authorization(Uuid),
    Challenge(Uuid, Method),
    /// The certificate of an order, and the number of an alternate chain.
    Certificate(Uuid, usize),
}

const GET: &[&str] = &["GET", "HEAD"];
/// Method of every resource that is not public. Reads use POST-as-GET (RFC 8555 section 6.3).
const POST: &[&str] = &["POST"];

/// The ACME operations, in the order of the variants of `Route`.
pub const OPERATIONS: [Operation; 15] = [
    Operation::of(GET, "/acme/directory", AccessRule::Anybody),
    Operation::of(GET, "/acme/new-nonce", AccessRule::Anybody),
    Operation::of(POST, "/acme/new-account", AccessRule::NewAccountKey),
    Operation::of(POST, "/acme/new-order", AccessRule::Account),
    Operation::of(POST, "/acme/new-authz", AccessRule::Account),
    Operation::of(POST, "/acme/revoke-cert", AccessRule::RevokingKey),
    Operation::of(POST, "/acme/key-change", AccessRule::OwnAccount),
    Operation::of(GET, "/acme/renewal-info/{certificate}", AccessRule::Anybody),
    Operation::of(POST, "/acme/acct/{id}", AccessRule::OwnAccount),
    Operation::of(POST, "/acme/acct/{id}/orders", AccessRule::OwnAccount),
    Operation::of(POST, "/acme/order/{id}", AccessRule::OwnAccount),
    Operation::of(POST, "/acme/order/{id}/finalize", AccessRule::OwnAccount),
    Operation::of(POST, "/acme/authz/{id}", AccessRule::OwnAccount),
    Operation::of(POST, "/acme/chall/{id}/http-01", AccessRule::OwnAccount),
    Operation::of(POST, "/acme/cert/{id}", AccessRule::OwnAccount),
];

impl<'p> Route<'p> {
    /// Returns the description of the operation. The exhaustive match forces new resources to have one.
    pub(crate) fn operation(&self) -> &'static Operation {
        let number = match self {
            Self::Directory(_) => 0,
            Self::NewNonce => 1,
            Self::NewAccount(_) => 2,
            Self::NewOrder(_) => 3,
            Self::NewAuthorization(_) => 4,
            Self::RevokeCertificate => 5,
            Self::KeyChange => 6,
            Self::RenewalInfo(_) => 7,
            Self::Account(_) => 8,
            Self::Orders(_) => 9,
            Self::Order(_) => 10,
            Self::Finalize(_) => 11,
            Self::Authorization(_) => 12,
            Self::Challenge(..) => 13,
            Self::Certificate(..) => 14,
        };
        &OPERATIONS[number]
    }

    /// Parses a path. Returns `None` if no resource matches.
    pub(crate) fn parse(path: &'p str) -> Option<Self> {
        let mut segments = path.strip_prefix(PREFIX)?.split('/');
        let first = segments.next()?;
        let rest = (segments.next(), segments.next(), segments.next());
        Some(match (first, rest) {
            ("directory", (None, ..)) => Self::Directory(None),
            ("new-nonce", (None, ..)) => Self::NewNonce,
            ("new-account", (None, ..)) => Self::NewAccount(None),
            ("new-order", (None, ..)) => Self::NewOrder(None),
            ("new-authz", (None, ..)) => Self::NewAuthorization(None),
            ("revoke-cert", (None, ..)) => Self::RevokeCertificate,
            ("key-change", (None, ..)) => Self::KeyChange,
            (profile, (Some("directory"), None, _)) => Self::Directory(named(profile)?),
            (profile, (Some("new-account"), None, _)) => Self::NewAccount(named(profile)?),
            (profile, (Some("new-order"), None, _)) => Self::NewOrder(named(profile)?),
            (profile, (Some("new-authz"), None, _)) => Self::NewAuthorization(named(profile)?),
            ("renewal-info", (Some(id), None, _)) => Self::RenewalInfo(id),
            ("acct", (Some(id), None, _)) => Self::Account(uuid(id)?),
            ("acct", (Some(id), Some("orders"), None)) => Self::Orders(uuid(id)?),
            ("order", (Some(id), None, _)) => Self::Order(uuid(id)?),
            ("order", (Some(id), Some("finalize"), None)) => Self::Finalize(uuid(id)?),
            ("authz", (Some(id), None, _)) => Self::Authorization(uuid(id)?),
            ("chall", (Some(id), Some(method), None)) => Self::Challenge(uuid(id)?, method.parse().ok()?),
            ("cert", (Some(id), None, _)) => Self::Certificate(uuid(id)?, 0),
            ("cert", (Some(id), Some(chain), None)) => {
                Self::Certificate(uuid(id)?, chain.parse().ok().filter(|number| *number > 0)?)
            }
            _ => return None,
        })
    }
}

fn named(profile: &str) -> Option<Option<&str>> {
    (!profile.is_empty()).then_some(Some(profile))
}

/// Parses a UUID in canonical spelling only, because account URLs are compared as strings.
fn uuid(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text).ok().filter(|id| id.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_path_routes_to_its_operation() {
        let id = Uuid::from_u128(7).to_string();
        for operation in &OPERATIONS {
            let path = operation.path.replace("{id}", &id).replace("{certificate}", "a.b");
            assert_eq!(Route::parse(&path).unwrap().operation(), operation, "{path}");
        }
    }

    #[test]
    fn paths_are_routed_to_resources() {
        let id = Uuid::from_u128(7);
        let at = |rest: &str| format!("/acme/{}", rest.replace("ID", &id.to_string()));
        let table: &[(&str, Option<Route<'_>>)] = &[
            ("directory", Some(Route::Directory(None))),
            ("web/directory", Some(Route::Directory(Some("web")))),
            ("acct/directory", Some(Route::Directory(Some("acct")))),
            ("/directory", None),
            ("new-nonce", Some(Route::NewNonce)),
            ("web/new-account", Some(Route::NewAccount(Some("web")))),
            ("new-order", Some(Route::NewOrder(None))),
            ("web/new-authz", Some(Route::NewAuthorization(Some("web")))),
            ("key-change", Some(Route::KeyChange)),
            ("revoke-cert", Some(Route::RevokeCertificate)),
            ("renewal-info/a.b", Some(Route::RenewalInfo("a.b"))),
            ("acct/ID", Some(Route::Account(id))),
            ("acct/ID/orders", Some(Route::Orders(id))),
            ("acct/{ID}", None),
            ("order/ID", Some(Route::Order(id))),
            ("order/ID/finalize", Some(Route::Finalize(id))),
            ("order/ID/finalize/x", None),
            ("authz/ID", Some(Route::Authorization(id))),
            ("chall/ID/dns-01", Some(Route::Challenge(id, Method::Dns01))),
            ("chall/ID/dns-02", None),
            ("cert/ID", Some(Route::Certificate(id, 0))),
            ("cert/ID/1", Some(Route::Certificate(id, 1))),
            ("cert/ID/0", None),
            ("cert/x", None),
            ("", None),
        ];
        for (path, expected) in table {
            assert_eq!(Route::parse(&at(path)), *expected, "{path}");
        }
        assert_eq!(Route::parse("/other/directory"), None);
        assert_eq!(Route::parse("/acme/acct/00000000000000000000000000000007"), None);
    }
}
