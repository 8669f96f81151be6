//! Tables of the operations of each protocol: methods, path and required authentication. Some protocols dispatch requests with
//! these tables; others are checked against them.

use coded::named;

named! {
    /// The authentication that an operation requires.
    pub enum AccessRule: "access rule" {
        /// No authentication.
        Anybody => "anybody",
        /// A signature with the key in the request. The request must also meet the profile's conditions for a new account.
        NewAccountKey => "the key of a new account",
        /// A signature with the key of a valid ACME account.
        Account => "the account",
        /// A signature by the account to which the resource belongs.
        OwnAccount => "the account that owns the object",
        /// A signature with the key of the certificate, or by an account that ordered the certificate or is authorized for all its
        /// names.
        RevokingKey => "the key of the certificate, its account, or proof of control of every name",
        /// A client certificate or an enrolment password.
        Enrolment => "an enrolment password or a client certificate",
        /// Authentication with the certificate to renew.
        Replaced => "the certificate that is replaced",
        /// A challenge password, or a signature with the certificate to renew.
        ScepMessage => "a challenge password, or the certificate to renew",
    }
}

/// An operation of a protocol: its HTTP methods, its path and the authentication that it requires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation {
    /// Allowed HTTP methods.
    pub methods: &'static [&'static str],
    /// Path template; for SCEP with the query parameter that selects the operation.
    pub path: &'static str,
    /// Authentication that the operation requires.
    pub rule: AccessRule,
}

impl Operation {
    pub(crate) const fn of(methods: &'static [&'static str], path: &'static str, rule: AccessRule) -> Self {
        Self { methods, path, rule }
    }
}
