//! A compromised server, which sends other orders than the issuing code intended.

use std::sync::Arc;

use authority::ca_keys::{CaKeyLocation, CaKeys, NewCaKey, SigningOrder, SigningPurpose};
use authority::issue::IssueRequest;
use authority::keystore::{KeyStoreError, NewKey};
use futures_util::future::{BoxFuture, FutureExt};
use keys::{Deadline, SignError};
use parking_lot::Mutex;
use signer::SignerClient;
use x509::UnixTime;
use x509::crl::{Crl, CrlSpec, Reason, Revoked, Scope, tbs_crl};

/// The change to the next order.
#[derive(Clone, Debug)]
pub(crate) enum Forgery {
    /// Changes the request that the certificate is declared to be for.
    Request(fn(&mut IssueRequest)),
    /// Moves the declared planning time of the certificate by seconds.
    Moment(i64),
    /// Replaces the document.
    Document(Vec<u8>),
    /// Changes the entries of a CRL, and adds to its number.
    Crl(fn(&mut Vec<Revoked>), i64),
}

#[derive(Debug)]
pub(crate) struct TakenOver {
    signer: Arc<SignerClient>,
    next: Mutex<Option<Forgery>>,
}

impl TakenOver {
    pub(crate) fn new(signer: Arc<SignerClient>) -> Self {
        Self { signer, next: Mutex::new(None) }
    }

    pub(crate) fn next(&self, forgery: Forgery) {
        *self.next.lock() = Some(forgery);
    }

    async fn send(&self, order: SigningOrder<'_>, deadline: Deadline) -> Result<Vec<u8>, SignError> {
        let forgery = self.next.lock().take();
        let (mut forged, mut tbs) = (None, order.tbs.to_vec());
        let mut moved = 0;
        match (&forgery, order.purpose) {
            (Some(Forgery::Request(change)), SigningPurpose::Certificate { request, .. }) => {
                let mut request = request.clone();
                change(&mut request);
                forged = Some(request);
            }
            (Some(Forgery::Moment(by)), SigningPurpose::Certificate { .. }) => moved = *by,
            (Some(Forgery::Document(document)), _) => tbs.clone_from(document),
            (Some(Forgery::Crl(change, by)), SigningPurpose::Crl { .. }) => tbs = crl(order, *change, *by),
            (None, _) => {}
            (Some(forgery), purpose) => panic!("{forgery:?} is not for {purpose:?}"),
        }
        let purpose = match (order.purpose, &forged) {
            (SigningPurpose::Certificate { request, planned_at }, forged) => SigningPurpose::Certificate {
                request: forged.as_ref().unwrap_or(request),
                planned_at: planned_at.plus(moved),
            },
            (purpose, _) => purpose,
        };
        self.signer.sign(SigningOrder { purpose, tbs: &tbs, ..order }, deadline).await
    }
}

/// Returns the CRL of the order with changed entries and number.
fn crl(order: SigningOrder<'_>, change: fn(&mut Vec<Revoked>), by: i64) -> Vec<u8> {
    let authority::ca_keys::CaKey::Of(ca) = order.key else { panic!("a CRL of a new CA") };
    let der = x509::build::signed(order.tbs, &ca.signer.algorithm(), &[0; 64]);
    let found = Crl::parse(&der).unwrap();
    let mut entries: Vec<Revoked> = found.entries().collect();
    change(&mut entries);
    let number = |serial: &x509::SerialNumber| {
        serial.content().iter().fold(0_i64, |number, byte| number << 8 | i64::from(*byte))
    };
    let spec = CrlSpec {
        signature: ca.signer.algorithm(),
        issuer: &ca.certificate.subject.der,
        this_update: found.this_update,
        next_update: found.next_update.unwrap_or(UnixTime(0)),
        number: u64::try_from(number(found.number.as_ref().unwrap()) + by).unwrap(),
        authority_key_id: &ca.key_identifier(),
        base: found.base.as_ref().map(|base| u64::try_from(number(base)).unwrap()),
        distribution_point: None,
        scope: Scope::All,
        freshest: found.freshest.first().map(String::as_str),
    };
    tbs_crl(&spec, &entries)
}

/// Removes every entry of a CRL.
pub(crate) fn empty(entries: &mut Vec<Revoked>) {
    entries.clear();
}

/// Changes the reason of every entry to `certificateHold`.
#[expect(clippy::ptr_arg, reason = "one type for every change")]
pub(crate) fn on_hold(entries: &mut Vec<Revoked>) {
    entries.iter_mut().for_each(|entry| entry.reason = Some(Reason::CertificateHold));
}

/// Leaves the entries unchanged.
pub(crate) fn same(_: &mut Vec<Revoked>) {}

impl CaKeys for TakenOver {
    fn make<'a>(&'a self, wanted: NewCaKey<'a>) -> BoxFuture<'a, Result<NewKey, KeyStoreError>> {
        self.signer.make(wanted)
    }

    fn sign<'a>(
        &'a self,
        order: SigningOrder<'a>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        self.send(order, deadline).boxed()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SignError>> {
        self.signer.ready()
    }

    fn custody(&self) -> CaKeyLocation {
        CaKeyLocation::Apart
    }
}
