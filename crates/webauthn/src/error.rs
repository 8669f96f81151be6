//! Reasons why a response of a security key is not accepted.

/// Reason why a response of a security key is not accepted. Only for logs and tests: callers get the same text for every reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// A member of the response is longer than its limit, or shorter than WebAuthn permits.
    #[error("a member of the response is too long or too short")]
    Size,
    /// The CBOR is malformed, or uses a form that CTAP2 does not permit.
    #[error("the response is not CBOR in the form of CTAP2")]
    Cbor,
    /// The authenticator data is malformed.
    #[error("the authenticator data is malformed")]
    AuthenticatorData,
    /// The client data is not the expected JSON.
    #[error("the client data is malformed")]
    ClientData,
    /// The client data is for another type of ceremony.
    #[error("the client data is for another type of ceremony")]
    Type,
    /// The challenge belongs to another ceremony.
    #[error("the response answers another challenge than the one that was sent")]
    Challenge,
    /// The origin is another site, or the page was in a frame of another site.
    #[error("the response was made for another site, or in a frame of another site")]
    Origin,
    /// The hash belongs to another relying party identifier.
    #[error("the response was made for another relying party identifier")]
    RelyingParty,
    /// The authenticator did not detect a user.
    #[error("the authenticator did not detect a user")]
    UserPresence,
    /// The authenticator did not verify the user by PIN or biometrics.
    #[error("the authenticator did not verify the user")]
    UserVerification,
    /// The public key is malformed, or its algorithm is not accepted.
    #[error("the public key is malformed or of an algorithm that is not accepted")]
    PublicKey,
    /// The signature does not match.
    #[error("the signature does not match")]
    Signature,
    /// The signature counter did not increase: the authenticator may have been cloned.
    #[error("the signature counter did not increase")]
    Counter,
    /// The credential is not the expected one, or belongs to another user.
    #[error("the credential does not match")]
    Credential,
}
