//! Event bodies about ACME accounts and orders.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An ACME account was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcmeAccountCreated {
    /// IP address of the client.
    pub address: String,
    /// Name of the profile of the ACME directory.
    pub profile: String,
    /// New contacts, as `mailto:` addresses.
    pub contact: Vec<String>,
    /// Id of the external account key. `None` without an external account binding.
    pub external_key: Option<Uuid>,
}

/// An ACME account's client changed or deactivated the account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcmeAccountChanged {
    /// The new `mailto:` addresses. `None` when unchanged.
    pub contact: Option<Vec<String>>,
}

/// An ACME account changed its key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcmeAccountKeyChanged {
    /// The thumbprint of the new key (RFC 7638).
    pub new_thumbprint: String,
}

/// An operator revoked an ACME account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcmeAccountRevoked {}

/// The certificate of an ACME order was issued.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcmeOrderCompleted {
    /// The issued certificate's id.
    pub certificate: Uuid,
    /// ID of the ACME account that placed the order.
    pub account: Uuid,
}

/// Issuance for an ACME order was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcmeOrderRefused {
    /// ID of the ACME account that placed the order.
    pub account: Uuid,
}
