//! A program of the operator as an issuer.
//!
//! It gets the CSR in PEM on standard input and the order as JSON in `BULLA_ORDER`, and writes the chain in PEM, leaf first. Exit
//! codes follow sysexits.h: 0 success, 65 rejected, 75 try again later, 77 permission denied, 78 configuration error. Any other
//! code means that the issuer is unavailable.

use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use x509::crl::Reason;
use x509::{Certificate, pem};

use crate::command::{Command, CommandOutput};
use crate::config::{ExecConfig, IssuerKind};
use crate::delivery::{DeliveredChain, parse_pem_chain};
use crate::error::IssuerError;
use crate::issuer::Issuer;
use crate::order::Order;
use crate::program_name::ProgramName;
use crate::programs::Programs;

/// Timeout of a revocation or a test.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A program that issues certificates.
#[derive(Debug)]
pub(crate) struct Exec {
    issue: Command,
    revoke: Option<Command>,
    test: Option<Command>,
}

impl Exec {
    pub(crate) fn new(config: &ExecConfig, programs: &Programs) -> Result<Self, IssuerError> {
        let limit = config.seconds.map(|seconds| Duration::from_secs(seconds.into()));
        let command = |name: &ProgramName| programs.get(name).map(|program| program.with_timeout(limit));
        Ok(Self {
            issue: command(&config.issue)?,
            revoke: config.revoke.as_ref().map(command).transpose()?,
            test: config.test.as_ref().map(command).transpose()?,
        })
    }

    async fn obtain(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        let environment =
            [("BULLA_ACTION", "issue".to_owned()), ("BULLA_ORDER", order_json(order).to_string())];
        let request = pem::encode("CERTIFICATE REQUEST", &order.csr_der);
        let run = self.issue.run(&[], &environment, request.as_bytes(), order.deadline).await?;
        Ok(DeliveredChain { chain: parse_pem_chain(&output_of(run)?)? })
    }

    async fn withdraw(&self, certificate: &Certificate, reason: Reason) -> Result<(), IssuerError> {
        let command = self.revoke.as_ref();
        let command = command.ok_or(IssuerError::Unsupported { what: "revoke: set its `revoke` program" })?;
        let environment = [("BULLA_ACTION", "revoke".to_owned()), ("BULLA_REASON", reason.to_string())];
        let pem = pem::encode("CERTIFICATE", &certificate.der);
        let run = command.run(&[], &environment, pem.as_bytes(), Instant::now() + REQUEST_TIMEOUT).await?;
        output_of(run).map(drop)
    }

    async fn check_service(&self) -> Result<String, IssuerError> {
        let Some(command) = &self.test else {
            return match tokio::fs::metadata(self.issue.program()).await {
                Ok(found) if found.is_file() => {
                    Ok(format!("{} exists; no test program is set", self.issue.program()))
                }
                _ => Err(IssuerError::misconfigured(format!(
                    "{} does not exist: correct argv of the program in the server's configuration file",
                    self.issue.program()
                ))),
            };
        };
        let environment = [("BULLA_ACTION", "test".to_owned())];
        let run = command.run(&[], &environment, &[], Instant::now() + REQUEST_TIMEOUT).await?;
        let output = output_of(run)?;
        Ok(callout::excerpt(&String::from_utf8_lossy(&output)))
    }
}

/// Returns the JSON form of an order for programs and services.
pub(crate) fn order_json(order: &Order) -> Value {
    let names: Vec<String> = order.names.iter().map(name_text).collect();
    json!({
        "key": order.key,
        "names": names,
        "profile": order.profile,
        "lifetime_seconds": order.lifetime_seconds,
        "requester": order.requester,
        "replaces": order.replaces.as_ref().map(|der| pem::encode("CERTIFICATE", der)),
    })
}

fn name_text(name: &x509::GeneralName) -> String {
    match name {
        x509::GeneralName::Ip(address) => address.to_string(),
        x509::GeneralName::Dns(text)
        | x509::GeneralName::BadIp(text)
        | x509::GeneralName::Email(text)
        | x509::GeneralName::Uri(text)
        | x509::GeneralName::Directory(text)
        | x509::GeneralName::Other(text) => text.clone(),
    }
}

/// Returns the output of the program, or the error for its exit code.
fn output_of(run: CommandOutput) -> Result<Vec<u8>, IssuerError> {
    let reason = if run.errors.is_empty() { format!("exit code {}", run.code) } else { run.errors };
    match run.code {
        0 => Ok(run.output),
        65 => Err(IssuerError::Refused { reason }),
        75 => Err(IssuerError::RateLimited { retry_after: None, reason }),
        77 => Err(IssuerError::Denied { reason }),
        78 | 126 | 127 => Err(IssuerError::Misconfigured { reason }),
        _ => Err(IssuerError::unavailable(reason)),
    }
}

impl Issuer for Exec {
    fn kind(&self) -> IssuerKind {
        IssuerKind::Exec
    }

    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.obtain(order).boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.withdraw(certificate, reason).boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        self.check_service().boxed()
    }
}
