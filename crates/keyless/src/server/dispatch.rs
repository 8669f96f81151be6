//! Validation and dispatch of requests of both protocols: signatures are made here, or requested from a remote key. This module
//! never blocks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::{Hash, Misfit, Scheme};

use super::caller::Caller;
use super::entry::Failure;
use super::memory::DIGEST_MAX;
use super::state::ServerState;
use crate::Key;
use crate::destination::KeyDestination;
use crate::key_name::KeyName;
use crate::key_set::Requester;
use crate::limits::REMOTE_MAX;
use crate::native::code_name;
use crate::refusal::Refusal;
use crate::routing::RequestContext;
use crate::stage::{Cost, Job};
use crate::tenant::Tenant;
/// Minimum length of messages that take longer to hash than to sign. They never count as light work.
const LONG: usize = 4_096;

/// Extra time after the deadline, in which an error that names the late node may arrive.
const LATE_ERROR_GRACE: Duration = Duration::from_millis(20);

/// Error message for the schemes of [`is_legacy`].
const LEGACY: &str = "RSA signatures with MD5, SHA-1 or SHA-224 are supported by security modules only";

/// Returns whether only security modules support the scheme, because the crypto library does not.
const fn is_legacy(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) if matches!(hash, Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224))
}

/// Deadline and policy of a signature request.
#[derive(Clone, Copy, Default)]
pub(super) struct Terms<'a> {
    /// The deadline, if the request has one.
    pub(super) due: Option<Instant>,
    /// Policy that the key must be sealed to; empty for any.
    pub(super) policy: &'a str,
}

impl ServerState {
    pub(super) fn seal(&self, caller: Caller, clear: &[u8]) {
        self.answer_with_ticket_keys(caller, |keys, owner| keys.seal(Instant::now(), owner, clear));
    }

    pub(super) fn unseal(&self, caller: Caller, sealed: &[u8]) {
        self.answer_with_ticket_keys(caller, |keys, owner| keys.open(Instant::now(), owner, sealed));
    }

    fn answer_with_ticket_keys(
        &self,
        caller: Caller,
        work: impl FnOnce(&keys::TicketKeys, &str) -> Result<Vec<u8>, keys::TicketError>,
    ) {
        if let Err(refusal) = caller.entry().admit() {
            return caller.fail(Failure::Overloaded(refusal));
        }
        let Some(keys) = &self.tickets else { return caller.fail(Failure::NoSealing) };
        let done = work(keys, caller.entry().tenant().name());
        caller.end(done);
    }

    pub(super) fn sign(
        self: &Arc<Self>,
        mut caller: Caller,
        name: KeyName,
        scheme: Scheme,
        input: Box<[u8]>,
        terms: Terms<'_>,
    ) {
        let tenant = Arc::clone(caller.entry().tenant());
        let key = match self.key_for(&caller, name) {
            Ok(key) => key,
            Err(failure) => return caller.fail(failure),
        };
        if !terms.policy.is_empty() && !key.is_under(terms.policy) {
            return caller.fail(Failure::Policy(key.policy.clone()));
        }
        // Checked before the key is used: with another key type, the input could be a valid input of another algorithm.
        if let Err(misfit) = scheme.check(key.kind, input.len()) {
            return caller.fail(Failure::Misfit(misfit));
        }
        // Other nodes have software keys too, and would return the same error.
        if (key.in_process_key.is_some() || key.route.is_some()) && is_legacy(scheme) {
            return caller.fail(Failure::Broken(LEGACY.to_owned()));
        }
        let deadline = self.deadline(&caller, &key, terms.due);
        if deadline <= Instant::now() {
            return caller.fail(Failure::Late);
        }
        let is_long = input.len() > DIGEST_MAX;
        let reserved = is_long.then(|| self.byte_budget.reserve(input.len(), &tenant));
        if let Some(None) = reserved {
            return caller.fail(Failure::Overloaded(Refusal::Bytes));
        }
        if let Err(refusal) = self.record(&mut caller, &key, &input) {
            return caller.fail(Failure::Overloaded(refusal));
        }
        caller.entry_mut().queue(reserved.flatten());
        let Some(in_process_key) = key.in_process_key.clone() else {
            let policy = key.policy.clone().filter(|_| !terms.policy.is_empty());
            return self.dispatch_remote(
                caller,
                key,
                RemoteOperation::Signature(scheme, policy),
                input,
                deadline,
            );
        };
        let cost = if input.len() > LONG && key.cost == Cost::Light { Cost::Medium } else { key.cost };
        let job =
            Job { key: in_process_key, scheme, input, deadline, line: tenant.line(), responder: caller };
        if let Err(job) = self.stage.submit(cost, job) {
            job.responder.fail(Failure::Overloaded(Refusal::Stage));
        }
    }

    /// Reserves a slot for the record of the operation, if records are enabled. Without a slot, the operation is rejected.
    fn record(&self, caller: &mut Caller, key: &Arc<Key>, input: &[u8]) -> Result<(), Refusal> {
        let Some(recorder) = &self.options.records else { return Ok(()) };
        if let Some(slot) = recorder.slot()? {
            caller.entry_mut().record(slot, Arc::clone(key), input);
        }
        Ok(())
    }

    /// Returns the key with this name, if the caller is within its limits and may use it.
    fn key_for(&self, caller: &Caller, name: KeyName) -> Result<Arc<Key>, Failure> {
        caller.entry().admit().map_err(Failure::Overloaded)?;
        let found = match name {
            KeyName::Ski(ski) => self.keys.find(&ski),
            KeyName::Spki(spki) => self.keys.find_spki(&spki),
        };
        // Keys that are sealed to a policy serve other nodes; keys of a folder, for example, do not.
        let is_for = |key: &Arc<Key>| key.for_nodes || caller.requester() == Requester::Client;
        let may_use = |key: &Arc<Key>| caller.entry().tenant().may_use(key);
        found.filter(|key| may_use(key) && is_for(key)).ok_or(Failure::UnknownKey)
    }

    /// Returns the deadline: as requested by the caller, or the default for the key.
    fn deadline(&self, caller: &Caller, key: &Key, due: Option<Instant>) -> Instant {
        due.unwrap_or_else(|| caller.entry().began() + key.default_timeout(self.options.deadline))
    }

    /// Returns whether RSA decryption is enabled for this tenant.
    pub(super) fn can_decrypt_for(&self, tenant: &Tenant) -> bool {
        self.options.rsa_decrypt && tenant.may_decrypt()
    }

    /// Performs RSA decryption without padding with a key of a security module, if [`Self::can_decrypt_for`] permits it.
    pub(super) fn decrypt(
        self: &Arc<Self>,
        mut caller: Caller,
        name: KeyName,
        input: Box<[u8]>,
        due: Option<Instant>,
    ) {
        let key = match self.key_for(&caller, name) {
            Ok(key) => key,
            Err(failure) => return caller.fail(failure),
        };
        let wanted = key.kind.rsa_bits().map_or(0, |bits| bits as usize / 8);
        if wanted == 0 {
            return caller.fail(Failure::Misfit(Misfit::Kind(key.kind)));
        }
        if input.len() != wanted {
            return caller.fail(Failure::Misfit(Misfit::Length { wanted, given: input.len() }));
        }
        if key.in_process_key.is_some() || key.route.is_some() {
            return caller.fail(Failure::NoDecryption);
        }
        let deadline = self.deadline(&caller, &key, due);
        if deadline <= Instant::now() {
            return caller.fail(Failure::Late);
        }
        if let Err(refusal) = self.record(&mut caller, &key, &input) {
            return caller.fail(Failure::Overloaded(refusal));
        }
        caller.entry_mut().queue(None);
        self.dispatch_remote(caller, key, RemoteOperation::Decryption, input, deadline);
    }

    /// Calls a remote key in a separate task that waits for the reply.
    fn dispatch_remote(
        self: &Arc<Self>,
        mut caller: Caller,
        key: Arc<Key>,
        operation: RemoteOperation,
        input: Box<[u8]>,
        deadline: Instant,
    ) {
        let destination = key.destination(&self.metrics);
        let refuse = |caller: Caller, refusal| {
            destination.iter().for_each(|destination| destination.refused(refusal));
            caller.fail(Failure::Overloaded(refusal));
        };
        let tenant = Arc::clone(caller.entry().tenant());
        let of_key = match key.acquire(tenant.name(), tenant.requests_per_key_max(), caller.requester()) {
            Ok(permit) => permit,
            Err(refusal) => return refuse(caller, refusal),
        };
        let Some(of_all) = self.remote.acquire(REMOTE_MAX) else {
            return refuse(caller, Refusal::Remote);
        };
        let (counted, call) = (self.metrics.remote(), destination.map(KeyDestination::began));
        self.tasks.spawn(async move {
            let _live = telemetry::tasks::guard("keyless-elsewhere");
            let _permits = (of_key, of_all, counted);
            caller.entry_mut().started();
            let cancelled = caller.cancelled();
            let calling = call_remote(&mut caller, &key, operation, &input, deadline);
            // The call itself ends at the deadline with an error that names the node. This timeout is a fallback for calls that do
            // not.
            let end = deadline + LATE_ERROR_GRACE;
            let done = tokio::select! {
                // Checked first: a cancelled request is not signed, even if the signature is possible now.
                biased;
                () = cancelled => None,
                done = tokio::time::timeout_at(end.into(), calling) => Some(done),
            };
            let done = done.map(|done| done.unwrap_or(Err(Failure::Late)));
            if let (Some(call), Some(Err(failure))) = (&call, &done) {
                call.failed(code_name(failure.grpc()));
            }
            // Dropped before the reply is sent: its receiver may read the metrics.
            drop(call);
            if let Some(done) = done {
                caller.end(done);
            }
        });
    }
}

enum RemoteOperation {
    /// A signature. If a policy is given, the key must be sealed to that policy.
    Signature(Scheme, Option<Arc<str>>),
    Decryption,
}

/// Routes the request to other nodes, or calls the security module or cloud that has the key.
async fn call_remote(
    caller: &mut Caller,
    key: &Key,
    operation: RemoteOperation,
    input: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>, Failure> {
    let (scheme, policy) = match operation {
        RemoteOperation::Signature(scheme, policy) => (scheme, policy),
        RemoteOperation::Decryption => return Ok(key.signer.decrypt_raw(input, deadline).await?.to_vec()),
    };
    let Some(route) = &key.route else { return Ok(key.signer.sign_digest(scheme, input, deadline).await?) };
    let entry = caller.entry_mut();
    let (trace, hops) = entry.forwarded();
    let tenant = Arc::clone(entry.tenant());
    let most = tenant.requests_per_node_max();
    let policy = policy.as_deref().unwrap_or_default();
    let context = RequestContext {
        tenant: tenant.name(),
        most,
        policy,
        trace: Some(trace),
        hops: Some(&hops),
        deadline,
    };
    Ok(route.request(scheme, input, &context).await?)
}
