//! The operations of the protocols, each from the table that its protocol dispatches by or is checked against.

use coded::named;

named! {
    /// What a caller of an operation has to show.
    pub enum AccessRule: "access rule" {
        /// Nothing.
        Anybody => "anybody",
        /// A signature by a key that it brings along, and what the profile wants of a new account.
        NewAccountKey => "a new account's key",
        /// A signature by the account.
        Account => "the account",
        /// A signature by the account that what is asked for belongs to.
        OwnAccount => "the account that it belongs to",
        /// A signature by the certificate's key, by the account that ordered it, or by one that proved every name.
        RevokingKey => "the certificate's key, its account, or proof of every name",
        /// A client certificate or a password for enrolment.
        Enrolment => "an enrolment password or a client certificate",
        /// The certificate that is to be replaced.
        Replaced => "the certificate that is replaced",
        /// A challenge password, or a signature by the certificate that is renewed.
        ScepMessage => "a challenge password, or the certificate that is renewed",
    }
}

/// An operation of a protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation {
    /// Methods that are taken.
    pub methods: &'static [&'static str],
    /// Its path as a template; of SCEP with the query that names the operation.
    pub path: &'static str,
    /// The permission that a caller needs.
    pub rule: AccessRule,
}

impl Operation {
    pub(crate) const fn of(methods: &'static [&'static str], path: &'static str, rule: AccessRule) -> Self {
        Self { methods, path, rule }
    }
}
