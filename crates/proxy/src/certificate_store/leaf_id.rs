//! What a leaf is known by.

use std::sync::Arc;

use x509::{Fingerprint, HostOrIp};

use crate::mint::{KeysOfLeaves, LeafKeyKind};

/// All that a leaf depends on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LeafId {
    /// The host of the leaf.
    pub name: HostOrIp,
    /// The authority's certificate.
    pub authority: Fingerprint,
    /// The key's type.
    pub kind: LeafKeyKind,
    /// Which leaves share a key.
    pub keys: KeysOfLeaves,
    /// The user whose leaves share the key ([`KeysOfLeaves::ByUser`]).
    pub user: Option<Arc<str>>,
    /// The profile of the leaf.
    pub profile: Arc<str>,
    /// The certificate whose like it is, if it is one's.
    pub mirrored: Option<Fingerprint>,
    /// Whether its key goes to another process.
    pub key_goes_to: KeyGoesTo,
}

/// Which other process has a leaf's key too.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum KeyGoesTo {
    /// None.
    #[default]
    Nobody,
    /// Whichever asks on this machine: a second level that other machines share does not have such a leaf.
    ThisMachine,
    /// One consumer, which is [`LeafId::user`].
    Consumer,
}
