//! The served version of a certificate, stored in addition to its newest version.
//!
//! A version counts as served after one of these observations: an agent deployed it, an agent found it after a failure, or a scan
//! saw it. Of several served versions, the one that expires first is stored, because clients fail when it expires.
//!
//! An observation is valid for [`time_limits::observation_max_age_us`], unless a later deployment of the newest version replaces it.
//! An observation of an endpoint that no watch scans again is valid only until a newer version is issued. Without any observation,
//! no version is verified.

use std::collections::HashMap;

use events::{CertificateServed, Event};
use store::time_limits;
use store::{StoreError, Tx};
use uuid::Uuid;
use x509::{Certificate, Fingerprint};

use crate::ledger::{Entry, Ledger};
use crate::managed::{TargetRef, split, targets_of};
use crate::state::State;
use crate::tables::managed::{
    DeployedVersion, ManagedRow, ObservedVersion, ServedFacts, deployed_versions, observed_versions,
};
use crate::transition::event_certificate;

/// Observations by agents and scans, by row id of the certificate.
#[derive(Default)]
pub(crate) struct Verified {
    deployed: HashMap<i64, Vec<DeployedVersion>>,
    observed: HashMap<i64, Vec<ObservedVersion>>,
}

impl Verified {
    pub(crate) async fn of(tx: &mut Tx, rows: &[&ManagedRow]) -> Result<Self, StoreError> {
        let pairs: Vec<(i64, Uuid)> =
            rows.iter().flat_map(|row| targets(row).into_iter().map(|target| (row.id, target))).collect();
        let mut all = Self::default();
        for one in deployed_versions(tx, &pairs).await? {
            all.deployed.entry(one.certificate).or_default().push(one);
        }
        for one in observed_versions(tx, rows.iter().map(|row| row.id).collect()).await? {
            all.observed.entry(one.certificate).or_default().push(one);
        }
        Ok(all)
    }

    /// Returns the version that expires first, among all served versions of a certificate.
    fn served(&self, row: &ManagedRow, now_us: i64) -> Option<ServedFacts> {
        let deployed = self.deployed.get(&row.id).map_or(&[][..], Vec::as_slice);
        let everywhere = deployed.len() == targets(row).len() && deployed.iter().all(|one| one.newest);
        let replaced_us = deployed.iter().map(|one| one.at_us).max().filter(|_| everywhere);
        let from_us = (now_us - time_limits::observation_max_age_us(row.life_us()))
            .max(replaced_us.unwrap_or(i64::MIN));
        let observed = self.observed.get(&row.id).into_iter().flatten();
        // An endpoint that is not scanned again does not show which version it has served since the newest version was issued.
        let is_fresh =
            |one: &&ObservedVersion| one.at_us >= from_us && (one.watched || one.at_us >= row.not_before_us);
        let observed = observed.filter(is_fresh).map(|one| ServedFacts {
            fingerprint: one.fingerprint,
            not_before_us: one.not_before_us,
            not_after_us: one.not_after_us,
        });
        let deployed = deployed.iter().map(|one| ServedFacts {
            fingerprint: one.fingerprint,
            not_before_us: one.not_before_us,
            not_after_us: earliest_expiry_us(one),
        });
        observed.chain(deployed).min_by_key(|one| (one.not_after_us, one.fingerprint))
    }

    /// Stores the served version of a certificate, and adds an event if the served version changed.
    pub(crate) fn note(&self, ledger: &mut Ledger, entry: &mut Entry) {
        let row = &mut entry.row;
        if row.undeployed_since_us.is_some() && targets(row).is_empty() {
            row.clear_undeployed();
        }
        let served = self.served(row, ledger.at_us());
        if served == row.served || row.state == State::Archived {
            return;
        }
        row.served = served;
        let fingerprint = served.map(|served| Fingerprint::from_bytes(served.fingerprint));
        let event =
            Event::CertificateServed(CertificateServed { certificate: event_certificate(row), fingerprint });
        ledger.announce(&entry.row, &event);
    }
}

/// Returns the targets of a certificate that agents deploy to.
fn targets(row: &ManagedRow) -> Vec<Uuid> {
    let all = targets_of(row).unwrap_or_default();
    let target = |one| match one {
        TargetRef::Deploy { target, .. } => Some(target),
        TargetRef::Endpoint { .. } => None,
    };
    all.into_iter().filter_map(target).collect()
}

/// Returns the earliest end of validity in a chain, in µs since 1970. Ignores certificates that expired before the leaf became
/// valid, because no client uses them in a path.
fn earliest_expiry_us(version: &DeployedVersion) -> i64 {
    let ends = split(&version.chain).into_iter().skip(1).filter_map(|der| {
        let above = Certificate::parse(&der).ok()?;
        Some(above.not_after.0.saturating_mul(1_000_000)).filter(|end| *end > version.not_before_us)
    });
    ends.chain([version.not_after_us]).min().unwrap_or(version.not_after_us)
}
