//! Execution of the jobs that the server assigns to the agent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use enrollment::Material;
use enrollment::client::{Api, ApiError};
use keys::{PrivateKey, Secret, Signer as _};
use telemetry::spans::{Kind, Span, TraceParent, part, within};
use x509::build::{Extension, signed};
use x509::{Certificate, DistinguishedName, GeneralName};

use super::api::{self, AssignedJob};
use super::folder::Folder;
use crate::deploy::Deployer;
use crate::work::{AgentJob, AssignedTarget, JobResult, Work};

/// Maximum number of attempts to report a result. After the last attempt the server hands out the job again.
const REPORT_ATTEMPTS_MAX: u32 = 5;
/// Maximum number of names in a CSR.
const NAMES_MAX: usize = 200;

pub(super) struct Worker {
    pub(super) folder: Folder,
    pub(super) api: Arc<Api>,
    pub(super) deployer: Deployer,
}

impl Worker {
    /// Runs a job and reports its result to the server. The returned error is for the log and the failure count.
    pub(super) async fn work(&self, given: AssignedJob) -> Result<(), String> {
        let id = given.id();
        let result = match given {
            AssignedJob::Job(job) => self.process_job(*job).await,
            AssignedJob::Unreadable(job, error) => {
                let error = format!("this version of the agent cannot parse the job: {error}");
                self.report_result(job, &JobResult::failed(None, &error)).await;
                Err(error)
            }
        };
        match &result {
            Ok(()) => tracing::info!(job = %id, "a job is done"),
            Err(error) => tracing::warn!(job = %id, %error, "a job failed"),
        }
        result
    }

    async fn process_job(&self, job: AgentJob) -> Result<(), String> {
        match &job.work {
            Work::Csr { key_type, names, subject, must_staple } => {
                let request = Request { names, subject: subject.as_deref(), must_staple: *must_staple };
                let made = match self.folder.load_csr(job.job) {
                    Ok(Some(made)) => Ok(made),
                    Ok(None) => self.make_csr(&job, *key_type, &request).await,
                    Err(error) => Err(error.to_string()),
                };
                match made {
                    Ok(made) => self.send_csr(&job, made.csr_pem).await,
                    Err(error) => {
                        self.report_result(job.job, &JobResult::failed(None, &error)).await;
                        Err(error)
                    }
                }
            }
            Work::Deploy { chain_pem, key_pem, target } => {
                let span = job.traceparent.as_deref().and_then(TraceParent::parse);
                let deployed = self.deploy(&job, chain_pem, key_pem.as_ref(), target);
                let result = within(span, traced(&job, target, deployed)).await;
                self.report_result(job.job, &result).await;
                if result.is_deployed() { Ok(()) } else { Err(result.error_text().unwrap_or_default()) }
            }
            Work::Unknown => {
                let error = "this version of the agent does not support this type of job: update the agent"
                    .to_owned();
                self.report_result(job.job, &JobResult::failed(None, &error)).await;
                Err(error)
            }
        }
    }

    async fn make_csr(
        &self,
        job: &AgentJob,
        kind: keys::KeyType,
        request: &Request<'_>,
    ) -> Result<super::folder::NewCsr, String> {
        // Invalid names must fail before a key is generated.
        let parts = request.parts()?;
        let key = PrivateKey::generate_in_background(kind).await.map_err(|error| error.to_string())?;
        let csr = csr(&key, &parts).map_err(|error| error.to_string())?;
        self.folder.write_csr(job.job, &key, csr).map_err(|error| error.to_string())
    }

    async fn send_csr(&self, job: &AgentJob, csr_pem: String) -> Result<(), String> {
        for tries in 1.. {
            match api::csr(&self.api, job.job, csr_pem.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if tries < REPORT_ATTEMPTS_MAX && error.is_transient() => {
                    pause(tries, &error).await
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    async fn deploy(
        &self,
        job: &AgentJob,
        chain_pem: &str,
        key_pem: Option<&Secret>,
        target: &AssignedTarget,
    ) -> JobResult {
        let material = match self.material(chain_pem, key_pem) {
            Ok(material) => material,
            Err(error) => return JobResult::failed(Some(target.id), &error),
        };
        let report = self.deployer.deploy(target.id, &target.target, &material).await;
        let result = JobResult::of(target.id, &report);
        if result.is_deployed()
            && let Err(error) = self.folder.deployed(job.certificate, &job.name, &material)
        {
            tracing::warn!(certificate = %job.certificate, %error, "the deployed certificate was not recorded");
        }
        result
    }

    fn material(&self, chain_pem: &str, key_pem: Option<&Secret>) -> Result<Material, String> {
        let key = match key_pem {
            Some(pem) => PrivateKey::from_pem(pem.expose()).map_err(|error| error.to_string())?,
            None => {
                let leaf = x509::pem::certificates(chain_pem.as_bytes()).next();
                let (_, leaf) = leaf.ok_or("the server sent no certificate")?;
                let leaf = Certificate::parse(&leaf).map_err(|error| error.to_string())?;
                let key = self.folder.key(&leaf.public_key.spki_sha256).map_err(|error| error.to_string())?;
                key.ok_or("the key of this certificate is not on this host: renew the certificate here")?
            }
        };
        Material::from_pem(chain_pem, key).map_err(|error| error.to_string())
    }

    /// Reports a result. An unreported result is not lost: the server hands out the job again. A repeated deployment then finds the
    /// certificate already deployed.
    async fn report_result(&self, job: uuid::Uuid, result: &JobResult) {
        for tries in 1..=REPORT_ATTEMPTS_MAX {
            match api::result(&self.api, job, result).await {
                Ok(()) => return,
                Err(error) if tries < REPORT_ATTEMPTS_MAX && error.is_transient() => {
                    pause(tries, &error).await
                }
                Err(error) => {
                    tracing::warn!(%job, %error, "the result of a job was not reported to the server");
                    return;
                }
            }
        }
    }
}

/// Exports a trace span for a deployment on this host, as a child of the job's span.
async fn traced(
    job: &AgentJob,
    target: &AssignedTarget,
    deployed: impl Future<Output = JobResult>,
) -> JobResult {
    let described = |span: Span| span.with("bulla.certificate", &job.name).with("bulla.target", &target.name);
    let outcome = part("agent deploy", Kind::Server, described, async {
        let result = deployed.await;
        if result.is_deployed() { Ok(result) } else { Err(FailedResult(result)) }
    });
    outcome.await.unwrap_or_else(|FailedResult(result)| result)
}

/// The result of a failed job, recorded as the error of the job's trace span.
struct FailedResult(JobResult);

impl fmt::Display for FailedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.error_text().unwrap_or_default())
    }
}

async fn pause(tries: u32, error: &ApiError) {
    let doubled = Duration::from_millis(500).saturating_mul(1 << tries.min(6));
    tokio::time::sleep(doubled.max(error.retry_after().unwrap_or_default().min(Duration::from_secs(60))))
        .await;
}

/// The requested content of a CSR.
struct Request<'r> {
    names: &'r [String],
    subject: Option<&'r str>,
    must_staple: bool,
}

/// The parsed content of a CSR.
struct Parts {
    subject: DistinguishedName,
    extensions: Vec<Extension>,
}

impl Request<'_> {
    fn parts(&self) -> Result<Parts, String> {
        if self.names.len() > NAMES_MAX {
            return Err(format!("a CSR can have at most {NAMES_MAX} names"));
        }
        let names: Result<Vec<_>, _> = self.names.iter().map(|name| GeneralName::parse(name)).collect();
        let names = names.map_err(|error| error.to_string())?;
        let subject = match self.subject {
            Some(text) => DistinguishedName::from_text(text).map_err(|error| error.to_string())?,
            None => DistinguishedName::empty(),
        };
        let mut extensions = Vec::new();
        if !names.is_empty() {
            extensions.push(Extension::subject_alt_names(&names));
        }
        if self.must_staple {
            extensions.push(Extension::must_staple());
        }
        Ok(Parts { subject, extensions })
    }
}

fn csr(key: &PrivateKey, parts: &Parts) -> Result<String, keys::SignError> {
    let tbs = x509::csr::tbs(&parts.subject.der, key.spki(), &parts.extensions, None);
    let der = signed(&tbs, &key.algorithm(), &key.sign_now(&tbs)?);
    Ok(x509::pem::encode("CERTIFICATE REQUEST", &der))
}

#[cfg(test)]
mod tests {
    use keys::KeyType;
    use x509::csr::CertificateRequest;

    use super::*;

    #[test]
    fn csr_contains_the_names_and_options_of_the_job() {
        let names = ["a.example".to_owned(), "10.0.0.1".to_owned()];
        let request = Request { names: &names, subject: Some("CN=a.example"), must_staple: true };
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let pem = csr(&key, &request.parts().unwrap()).unwrap();
        let read = CertificateRequest::from_pem_or_der(pem.as_bytes()).unwrap();
        read.verify().unwrap();
        assert_eq!(read.subject_alt_names.len(), 2);
        assert!(read.must_staple);
        assert_eq!(&*read.public_key.spki, key.spki());
    }

    #[test]
    fn invalid_names_are_rejected_before_a_csr_is_made() {
        let names = ["not a name".to_owned()];
        assert!(Request { names: &names, subject: None, must_staple: false }.parts().is_err());
        let many = vec!["a.example".to_owned(); NAMES_MAX + 1];
        assert!(Request { names: &many, subject: None, must_staple: false }.parts().is_err());
    }
}
