//! Issuance of certificates. The steps are the policy check, the lookup of blocked keys and idempotency keys, the signature, and
//! one transaction for a batch of certificates. A certificate is returned only after it is stored.
//!
//! A crash before the commit issues nothing: the signed bytes are lost and their serial number is unused. After the commit, the
//! idempotency key returns the certificate.

mod error;
mod plan;
mod request;
mod suffixes;
mod writing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::access::Object;
use keys::{SignError, Signer};
use uuid::Uuid;
use x509::{Certificate, Fingerprint, SerialNumber, UnixTime, build};

pub use crate::tables::Source;
pub use error::IssueError;
pub use request::{ApprovalRef, IDEMPOTENCY_KEY_MAX, IssueRequest, Issued};
pub(crate) use suffixes::is_whole as is_whole_suffix;
pub(crate) use writing::Issuing;
pub use writing::record;

use crate::Authority;
use crate::ca_keys::{CaKey, SigningPurpose};
use crate::figures::Counters;
use crate::profile::Profile;
use crate::tables;
use crate::tables::{IdempotencyHashes, Insertion, IssuedRow, NewIssued, UsedIdempotencyKey};
use crate::teams::OwnershipRights;
use crate::tree::{Ca, Urls, inventory_row, random_serial};
use plan::Plan;

/// A database record of an issued certificate.
pub type IssuedRecord = IssuedRow;

/// Timeout of a signature with the CA key. Security modules in a network are slow.
const SIGN_FOR: Duration = Duration::from_secs(30);

/// Reference to an issued certificate: its identifier, fingerprint, or CA and serial number.
#[derive(Clone, Debug)]
pub enum IssuedRef {
    /// Identifier of the certificate in the database.
    Id(Uuid),
    /// SHA-256 fingerprint of the certificate.
    Fingerprint(Fingerprint),
    /// Id of the issuing CA and serial number of the certificate.
    Serial(Uuid, SerialNumber),
}

/// A request that passed the policy check.
struct AuthorizedRequest {
    profile: Arc<Profile>,
    ca: Arc<Ca>,
    plan: Plan,
    planned_at: UnixTime,
    /// Team to whose quota the certificate counts.
    team: Option<String>,
}

impl Authority {
    /// Issues a certificate, or returns the one issued earlier for the same idempotency key.
    ///
    /// # Errors
    /// [`IssueError`]; if [`IssueError::is_refusal`] returns true, only a different request can succeed.
    ///
    /// # Cancellation
    /// If the future is dropped, the certificate may or may not be issued. Repeat the request with the same idempotency key.
    #[crate::boxed]
    pub async fn issue(&self, request: IssueRequest) -> Result<Issued, IssueError> {
        let counters = self.counters();
        let in_progress = Counters::in_progress(&counters.issuing);
        let outcome = self.try_issue(request).await;
        drop(in_progress);
        let counter = match &outcome {
            Ok(issued) if issued.repeated => &counters.repeated,
            Ok(_) => &counters.issued,
            Err(error) if error.is_refusal() => &counters.refused,
            Err(_) => &counters.failed,
        };
        Counters::add(counter, 1);
        outcome
    }

    async fn try_issue(&self, request: IssueRequest) -> Result<Issued, IssueError> {
        if let Some(length) =
            request.idempotency_key.as_ref().map(String::len).filter(|l| *l > IDEMPOTENCY_KEY_MAX)
        {
            return Err(IssueError::KeyTooLong(length));
        }
        let idempotency = request.idempotency();
        let granted = match self.grant(&request).await {
            Ok(granted) => granted,
            // A certificate that was already issued is returned, even if the request would be rejected now.
            Err(refusal) => return self.repeat_or_refuse(refusal, idempotency).await,
        };
        if let Some(used) = self.lookup(&granted.plan, idempotency).await? {
            return self.repeat(used, idempotency).await;
        }
        let prepared = self.dry_run(&granted)?;
        let AuthorizedRequest { profile, ca, planned_at, team, .. } = granted;
        // The quota counts managed certificates when they are ordered, whichever issuer they use.
        if let Some(team) = team.filter(|_| request.source != Source::Lifecycle) {
            self.teams().count(&team, self.clock().now_us()).await?;
        }
        let shard = prepared.shard;
        let purpose = SigningPurpose::Certificate { request: &request, planned_at };
        let certificate = prepared.sign(&self.signing(CaKey::Of(&ca), purpose)).await?;
        let row = NewIssued {
            id: Uuid::now_v7(),
            certificate: Arc::new(inventory_row(&certificate)),
            ca: ca.id,
            serial: certificate.serial.content().to_vec(),
            profile: profile.name.clone(),
            source: request.source,
            requester: request.requester,
            issued_at_us: self.clock().now_us(),
            shard,
            idempotency,
        };
        let id = row.id;
        let waiting = Counters::in_progress(&self.counters().storing);
        let stored = self.issuing().store(row).await?;
        drop(waiting);
        match stored {
            Insertion::New => Ok(Issued {
                id,
                serial: certificate.serial,
                fingerprint: certificate.fingerprint,
                der: certificate.der,
                chain: Arc::clone(&ca.chain),
                not_before: certificate.not_before,
                not_after: certificate.not_after,
                ca: ca.id,
                profile: profile.name.clone(),
                repeated: false,
            }),
            Insertion::Repeated(used) => self.repeat(used, idempotency).await,
            Insertion::Blocked => Err(IssueError::KeyBlocked(certificate.public_key.spki_sha256)),
        }
    }

    /// Checks whether a request would be granted now. Nothing is signed or stored.
    ///
    /// # Errors
    /// The errors of [`Authority::issue`].
    #[crate::boxed]
    pub async fn check(&self, request: &IssueRequest) -> Result<(), IssueError> {
        let granted = self.grant(request).await?;
        self.lookup(&granted.plan, None).await?;
        self.dry_run(&granted).map(drop)
    }

    /// Returns the record of an issued certificate; `None` if this server did not issue the certificate.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn issued(&self, which: &IssuedRef) -> Result<Option<IssuedRecord>, store::StoreError> {
        match which {
            IssuedRef::Id(id) => tables::Issued::of(self.store()).by_id(*id).await,
            IssuedRef::Fingerprint(fingerprint) => {
                tables::Issued::of(self.store()).by_sha256(fingerprint.as_bytes()).await
            }
            IssuedRef::Serial(ca, serial) => {
                tables::Issued::of(self.store()).by_serial(*ca, serial.content()).await
            }
        }
    }

    /// Returns the tbsCertificate expected for a request under a profile. The signer compares the tbsCertificate that it received
    /// with this one.
    pub(crate) fn planned_tbs_certificate(
        &self,
        request: &IssueRequest,
        profile: &Profile,
        ca: &Ca,
        planned_at: UnixTime,
        serial: &SerialNumber,
    ) -> Result<Vec<u8>, IssueError> {
        let plan = Plan::make(request, profile, ca, &self.issuing().limits(ca), planned_at)?;
        let shard = shard_of(serial, self.options().crl_shards);
        let tbs = plan.tbs(profile, ca, Urls::new(&self.options().base_url, ca.id), serial, shard);
        plan.dry_run(&tbs, profile, ca, planned_at)?;
        Ok(tbs)
    }

    /// Resolves the profile and the CA, and checks the policy.
    async fn grant(&self, request: &IssueRequest) -> Result<AuthorizedRequest, IssueError> {
        let profile = self.profile(&request.profile).await?;
        let ca = match request.ca {
            Some(id) => self.ca_by_id(id).await?,
            None => self.issuing_ca(profile.ca.as_deref()).await?,
        };
        let now = UnixTime(self.clock().now_seconds());
        let plan = Plan::make(request, &profile, &ca, &self.issuing().limits(&ca), now)?;
        suffixes::check(&plan.names, &self.options().private_suffixes)?;
        let team = self.check_teams(&plan, &profile, &request.rights).await?;
        Ok(AuthorizedRequest { profile, ca, plan, planned_at: now, team })
    }

    /// Checks that the profile and the names, including common names, do not belong to different teams or to a team other than the
    /// requester's. Returns the team to whose quota the certificate counts.
    async fn check_teams(
        &self,
        plan: &Plan,
        profile: &Profile,
        rights: &OwnershipRights,
    ) -> Result<Option<String>, IssueError> {
        let names = plan.names.iter().map(ToString::to_string);
        // Old clients treat a common name as a host. A common name without a dot belongs to no team.
        let common = plan.subject.common_names.iter().filter(|name| name.contains('.')).cloned();
        let object = Object::profile(&profile.name).with_names(names.chain(common));
        let ownership = self.teams().ownership().await.map_err(IssueError::Store)?;
        Ok(ownership.check_issue(&object, rights)?.map(str::to_owned))
    }

    /// Checks that the key is not blocked, and looks up the idempotency key.
    async fn lookup(
        &self,
        plan: &Plan,
        idempotency: Option<IdempotencyHashes>,
    ) -> Result<Option<UsedIdempotencyKey>, IssueError> {
        let spki = plan.key.spki_sha256;
        let seen = self
            .issuing()
            .lookup(*spki.as_bytes(), idempotency.map(|idempotency| idempotency.key_sha256))
            .await?;
        match (seen.used, seen.blocked) {
            (Some(used), _) => Ok(Some(used)),
            (None, true) => Err(IssueError::KeyBlocked(spki)),
            (None, false) => Ok(None),
        }
    }

    async fn repeat_or_refuse(
        &self,
        refusal: IssueError,
        idempotency: Option<IdempotencyHashes>,
    ) -> Result<Issued, IssueError> {
        let Some(idempotency) = idempotency else { return Err(refusal) };
        match tables::Issued::of(self.store()).key(&idempotency.key_sha256).await? {
            Some(used) => self.repeat(used, Some(idempotency)).await,
            None => Err(refusal),
        }
    }

    async fn repeat(
        &self,
        used: UsedIdempotencyKey,
        idempotency: Option<IdempotencyHashes>,
    ) -> Result<Issued, IssueError> {
        if idempotency.is_none_or(|idempotency| idempotency.request_sha256 != used.request_sha256) {
            return Err(IssueError::KeyReused);
        }
        let row = tables::Issued::of(self.store()).by_id(used.id).await?;
        let row = row.ok_or_else(|| {
            IssueError::from(store::StoreError::Corrupt(format!("the certificate {} is missing", used.id)))
        })?;
        let ca = self.ca_by_id(row.ca).await?;
        Ok(Issued {
            id: row.id,
            serial: SerialNumber::from_content(&row.serial),
            fingerprint: Fingerprint::from_bytes(row.sha256),
            der: row.der.into(),
            chain: Arc::clone(&ca.chain),
            not_before: seconds(row.not_before_us),
            not_after: seconds(row.not_after_us),
            ca: row.ca,
            profile: row.profile,
            repeated: true,
        })
    }

    /// Builds the tbsCertificate, and lints a certificate made from it with a placeholder signature.
    fn dry_run(&self, granted: &AuthorizedRequest) -> Result<PreparedCertificate, IssueError> {
        let AuthorizedRequest { profile, ca, plan, .. } = granted;
        let serial = random_serial()?;
        let shard = shard_of(&serial, self.options().crl_shards);
        let tbs = plan.tbs(profile, ca, Urls::new(&self.options().base_url, ca.id), &serial, shard);
        let certificate = plan.dry_run(&tbs, profile, ca, UnixTime(self.clock().now_seconds()))?;
        Ok(PreparedCertificate { tbs, certificate, shard })
    }
}

/// A document that is ready to be signed.
struct PreparedCertificate {
    tbs: Vec<u8>,
    /// The certificate with a placeholder signature.
    certificate: Certificate,
    shard: u32,
}

impl PreparedCertificate {
    async fn sign(mut self, signer: &dyn Signer) -> Result<Certificate, SignError> {
        let signature = signer.sign(&self.tbs, Instant::now() + SIGN_FOR).await?;
        let der = build::signed(&self.tbs, &signer.algorithm(), &signature);
        self.certificate.fingerprint = Fingerprint::of(&der);
        self.certificate.der = der.into();
        Ok(self.certificate)
    }
}

/// Returns the number of the CRL shard of a certificate, from 1; 0 without shards. Serial numbers are random, so the shards have
/// similar sizes.
fn shard_of(serial: &SerialNumber, shards: u32) -> u32 {
    let last = serial.content().iter().rev().take(4).fold(0_u32, |n, byte| n << 8 | u32::from(*byte));
    if shards == 0 { 0 } else { last % shards + 1 }
}

fn seconds(us: i64) -> UnixTime {
    UnixTime(us.div_euclid(1_000_000))
}
