//! Identity of a leaf in the store.

use std::sync::Arc;

use x509::{Fingerprint, HostOrIp};

use crate::mint::{LeafKeyKind, LeafKeySharing};

/// All properties that distinguish leaves.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LeafId {
    /// Host name or address that the leaf is for.
    pub name: HostOrIp,
    /// Fingerprint of the CA certificate.
    pub authority: Fingerprint,
    /// Key type of the leaf.
    pub kind: LeafKeyKind,
    /// Scope in which leaf certificates share a key.
    pub keys: LeafKeySharing,
    /// The user whose leaves share the key ([`LeafKeySharing::ByUser`]).
    pub user: Option<Arc<str>>,
    /// Text of all minter settings that affect the leaf. Leaves with different profiles are never shared.
    pub profile: Arc<str>,
    /// Fingerprint of the upstream certificate that the leaf mirrors, if any.
    pub mirrored: Option<Fingerprint>,
    /// The other processes that get the leaf's key, if any.
    pub key_recipients: KeyRecipients,
}

/// Other processes that get a leaf's key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum KeyRecipients {
    /// No other process.
    #[default]
    Nobody,
    /// Any caller on this machine. A second level that other machines share does not store such a leaf.
    ThisMachine,
    /// One consumer, whose name is [`LeafId::user`].
    Consumer,
}
