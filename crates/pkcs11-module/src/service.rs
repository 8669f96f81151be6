//! A client of the key service on its own runtime, started with the first signature. Until then, a TLS terminator that loads the
//! module and then forks has no threads and connections of this module.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptoki_sys::*;
use keyless::client::{Client, ClientMetrics};
use keys::{Scheme, SignError, Signer};
use tokio::runtime::{Builder, Runtime};

use crate::Outcome;
use crate::certificates::CertificateKey;
use crate::ffi::signals;
use crate::identity::{KEPT, Presented};
use crate::report::{ThrottledMessage, log};
use crate::setup::Setup;

/// Timeout for this module's tasks to end at shutdown. The tasks have nothing to finish.
const STOP: Duration = Duration::from_secs(2);
/// Interval of checks of the client certificate's files.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Client of the key service, with the runtime on which it runs.
pub(crate) struct Service {
    /// The runtime; `None` only while this value is dropped.
    runtime: Option<Runtime>,
    client: Client,
    timeout: Duration,
}

impl Service {
    /// Starts the client on its own thread and begins to connect, without waiting for a connection.
    ///
    /// # Errors
    /// `CKR_GENERAL_ERROR`, when no threads can be started.
    pub(crate) fn start(setup: &Arc<Setup>) -> Outcome<Self> {
        let presented = setup.presented();
        // One thread does all I/O. The calling threads wait for their own responses.
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("bulla-pkcs11").enable_all();
        // Signals are for the program's threads. A signal that a thread of this module receives would not wake the program.
        let built = signals::with_signals_blocked(|| {
            let runtime = builder.build().map_err(|error| error.to_string())?;
            let entered = runtime.enter();
            let client = Client::start(&presented.options, ClientMetrics::default())
                .map_err(|error| error.to_string())?;
            if presented.options.tls.is_some() {
                tokio::spawn(present(client.clone(), Arc::clone(setup), presented));
            }
            drop(entered);
            let timeout = setup.settings().sign_timeout();
            Ok::<_, String>(Self { runtime: Some(runtime), client, timeout })
        });
        built.map_err(|error| {
            log(format_args!("the key service client cannot be started: {error}"));
            CKR_GENERAL_ERROR
        })
    }

    /// Signs with the key service. Blocks this thread until the signature is ready or shortly after the timeout.
    ///
    /// # Errors
    /// `CKR_DEVICE_ERROR` when a retry may succeed: no key service is reachable, or none responded in time. `CKR_FUNCTION_FAILED`
    /// when the signature is rejected.
    pub(crate) fn sign(&self, key: &CertificateKey, scheme: Scheme, input: &[u8]) -> Outcome<Vec<u8>> {
        static NOT_SIGNED: ThrottledMessage = ThrottledMessage::new();
        let runtime = self.runtime.as_ref().ok_or(CKR_GENERAL_ERROR)?;
        let remote = self.client.key(&key.leaf.public_key.spki).ok_or(CKR_FUNCTION_FAILED)?;
        let deadline = Instant::now() + self.timeout;
        runtime.block_on(remote.sign_digest(scheme, input, deadline)).map_err(|error| {
            NOT_SIGNED.log(format_args!("signing with {} failed: {error}", key.ski));
            match error {
                SignError::Late | SignError::Unavailable(_) => CKR_DEVICE_ERROR,
                SignError::Failed(_) => CKR_FUNCTION_FAILED,
            }
        })
    }
}

/// Uses changed client certificate files for new connections. Ends with the runtime.
async fn present(client: Client, setup: Arc<Setup>, mut presented: Arc<Presented>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let looking = Arc::clone(&setup);
        let Ok(now) = tokio::task::spawn_blocking(move || looking.presented()).await else { return };
        let tls = now.options.tls.as_ref().filter(|_| !Arc::ptr_eq(&now, &presented));
        if let Some(Err(error)) = tls.map(|tls| client.change_tls(tls)) {
            log(format_args!("{KEPT}: {error}"));
        }
        presented = now;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(STOP);
        }
    }
}
