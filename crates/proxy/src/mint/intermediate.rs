//! A short-lived intermediate CA below the operator's CA. Its key exists only in the memory of this process. The operator's key
//! signs a new intermediate CA at intervals, instead of every leaf.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use http_relay::clock::now;
use keys::{KeyType, PrivateKey, SignError, Signer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use x509::build::{self, Attribute, CertificateSpec, Extension};
use x509::{BasicConstraints, KeyUsage, UnixTime};

use super::authority::{Authority, SIGN_TIMEOUT};
use super::error::MintError;
use super::minter::Minter;
use super::serial::new_serial;
use super::validity::{CLOCK_SKEW_S, VALIDITY_MIN};

/// An intermediate is replaced when less than one part in `RENEW_PARTS` of its lifetime remains.
const RENEW_PARTS: i64 = 3;
/// Interval of checks whether a new intermediate is due, and of retries. Short, because the validity continues while the machine
/// sleeps, but a timer does not.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Source of short-lived intermediate CAs below a CA.
#[derive(Clone, Debug)]
pub struct Intermediates {
    parent: Authority,
    life: Duration,
}

impl Intermediates {
    /// Creates a source of intermediates. Each is valid for `life`, but never longer than `parent`.
    #[must_use]
    pub fn new(parent: Authority, life: Duration) -> Self {
        Self { parent, life: life.max(VALIDITY_MIN) }
    }

    /// Creates an intermediate with a new key, valid from `now`.
    ///
    /// # Errors
    /// [`MintError`]
    #[crate::boxed]
    pub async fn make(&self, now: UnixTime) -> Result<Authority, MintError> {
        let parent = &self.parent;
        if !parent.permits_intermediate() {
            return Err(MintError::NoneBelow);
        }
        let not_after = now.plus(self.life.as_secs() as i64).min(parent.not_after());
        if not_after.since(now) < VALIDITY_MIN.as_secs() as i64 {
            return Err(MintError::AuthorityEnds);
        }
        let key = PrivateKey::generate(KeyType::P256).map_err(|error| {
            SignError::Failed(format!("cannot generate a key for an intermediate: {error}"))
        })?;
        let id = build::key_id(key.spki());
        let tag = HEXLOWER.encode(&id[..4]);
        let name =
            build::distinguished_name(&[(Attribute::CommonName, format!("Bulla proxy intermediate {tag}"))]);
        let mut extensions = vec![
            Extension::basic_constraints(BasicConstraints { ca: true, path_len: Some(0) }),
            Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN)),
            Extension::subject_key_id(&id),
            Extension::authority_key_id(parent.key_id()),
        ];
        if !parent.crl_urls().is_empty() {
            extensions.push(Extension::crl_distribution_points(parent.crl_urls()));
        }
        let spec = CertificateSpec {
            serial: &new_serial()?,
            signature: parent.signer().algorithm(),
            issuer: parent.subject(),
            subject: &name.der,
            not_before: now.plus(-CLOCK_SKEW_S).max(parent.not_before()),
            not_after,
            spki: key.spki(),
            extensions: &extensions,
        };
        let tbs = build::tbs_certificate(&spec);
        let signature = parent.signer().sign(&tbs, (Instant::now() + SIGN_TIMEOUT).into_std()).await?;
        let mut chain = vec![build::signed(&tbs, &spec.signature, &signature)];
        chain.extend(parent.chain().map(|der| der.to_vec()));
        Ok(Authority::new(&chain, Arc::new(key), parent.crl_urls().to_vec())?)
    }

    /// Replaces the intermediate of `minter` before it expires, until `stop`.
    #[crate::boxed]
    pub async fn keep(&self, minter: Minter, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("proxy-intermediate");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_INTERVAL.min(self.life / 10)) => {}
            }
            let now = now();
            if !self.is_due(&minter.authority(), now) {
                continue;
            }
            match self.make(now).await {
                Ok(next) => minter.change_authority(next),
                Err(error) => {
                    tracing::warn!(%error, "the intermediate CA expires soon and cannot be replaced")
                }
            }
        }
    }

    /// Returns whether to replace the intermediate: most of its lifetime has passed, and a new one would be valid longer. A new
    /// one would not be valid longer if the CA above it expires soon.
    fn is_due(&self, current: &Authority, now: UnixTime) -> bool {
        let life = self.life.as_secs() as i64;
        let next = now.plus(life).min(self.parent.not_after());
        current.not_after().since(now) * RENEW_PARTS <= life && next > current.not_after()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mint::new_root;

    #[test]
    fn intermediate_is_replaced_only_when_a_new_one_lasts_longer() {
        const LIFE: i64 = 9 * 3_600;
        let ending = |at| {
            let key = PrivateKey::generate(KeyType::P256).unwrap();
            Authority::new(&[new_root(&key, at).unwrap()], Arc::new(key), Vec::new()).unwrap()
        };
        let began = now();
        let all = Intermediates::new(ending(began), Duration::from_secs(LIFE as u64));
        // `before`: seconds before the end of the current intermediate.
        let due = |current: &Authority, before: i64| all.is_due(current, current.not_after().plus(-before));
        let early = ending(began.plus(-86_400));
        for (before, is) in [(LIFE, false), (LIFE / 3 + 60, false), (LIFE / 3 - 60, true), (0, true)] {
            assert_eq!(due(&early, before), is, "{before} s before it ends");
        }
        // The next intermediate would expire together with the CA above, like this one.
        for before in [LIFE, LIFE / 3 - 60, 0] {
            assert!(!due(&ending(began), before), "{before} s before both end");
        }
    }
}
