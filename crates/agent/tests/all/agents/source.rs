//! A minimal replacement of the certificate lifecycle: jobs in memory, and a CA of the test.

use std::sync::Arc;

use agent::deploy::Target;
use agent::work::{AgentJob, AssignedTarget, JobResult, Work, WorkError, WorkSource};
use enrollment::{Certified, Certify, CertifyError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keys::KeyType;
use parking_lot::Mutex;
use uuid::Uuid;
use x509::build::Extension;
use x509::csr::CertificateRequest;
use x509::{Certificate, GeneralName};

use crate::deploy::world::Issuer;

/// Client authentication (RFC 5280 section 4.2.1.12).
const CLIENT_AUTH: &str = "1.3.6.1.5.5.7.3.2";

/// A source of jobs: a CSR job for each order, then a deployment of the issued certificate.
#[derive(Clone, Default)]
pub(crate) struct Source(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    orders: Vec<Order>,
    /// All received CSRs, in order.
    csrs: Vec<Vec<u8>>,
    results: Vec<(Uuid, JobResult)>,
    /// Whether the next CSR is accepted and its response lost.
    lose_answer: bool,
    polls: usize,
}

struct Order {
    agent: Uuid,
    job: Uuid,
    deploy: Uuid,
    certificate: Uuid,
    target: AssignedTarget,
    names: Vec<String>,
    chain_pem: Option<String>,
    done: bool,
}

impl Source {
    /// Orders a certificate; returns the ID of its target.
    pub(crate) fn order(&self, agent: Uuid, name: &str, target: Target) -> Uuid {
        let id = Uuid::now_v7();
        self.0.lock().orders.push(Order {
            agent,
            job: Uuid::now_v7(),
            deploy: Uuid::now_v7(),
            certificate: Uuid::now_v7(),
            target: AssignedTarget { id, name: "web".to_owned(), target },
            names: vec![name.to_owned()],
            chain_pem: None,
            done: false,
        });
        id
    }

    pub(crate) fn lose_next_answer(&self) {
        self.0.lock().lose_answer = true;
    }

    pub(crate) fn csrs(&self) -> Vec<Vec<u8>> {
        self.0.lock().csrs.clone()
    }

    pub(crate) fn results(&self) -> Vec<JobResult> {
        self.0.lock().results.iter().map(|(_, result)| result.clone()).collect()
    }

    /// Returns whether an agent reported a deployment to a target. It reports one again if it polled before the server processed the
    /// first report, so the number of results says less.
    pub(crate) fn is_deployed(&self, target: Uuid) -> bool {
        self.results().iter().any(|result| result.target == Some(target) && result.is_deployed())
    }

    pub(crate) fn chain_pem(&self) -> Option<String> {
        self.0.lock().orders.iter().find_map(|order| order.chain_pem.clone())
    }

    pub(crate) fn polls(&self) -> usize {
        self.0.lock().polls
    }
}

/// Issues certificates for the source and for the agents.
pub(crate) struct Authority(pub(crate) Arc<Issuer>, pub(crate) Source);

impl WorkSource for Authority {
    fn jobs_for_agent(&self, agent: Uuid, limit: usize) -> BoxFuture<'_, Result<Vec<AgentJob>, WorkError>> {
        let mut state = self.1.0.lock();
        state.polls += 1;
        let open = state.orders.iter().filter(|order| order.agent == agent && !order.done);
        let jobs = open.take(limit).map(Order::next).collect();
        async move { Ok(jobs) }.boxed()
    }

    fn accept_csr(&self, agent: Uuid, job: Uuid, csr: Vec<u8>) -> BoxFuture<'_, Result<(), WorkError>> {
        let mut state = self.1.0.lock();
        state.csrs.push(csr.clone());
        let lost = std::mem::take(&mut state.lose_answer);
        let order = state.orders.iter_mut().find(|order| order.agent == agent && order.job == job);
        let result = match order {
            None => Err(WorkError::NotFound),
            // A CSR whose response is lost is not processed. The agent must send the same CSR again.
            Some(_) if lost => Err(WorkError::Unavailable("the answer is lost".to_owned())),
            Some(order) => {
                let request = CertificateRequest::parse(&csr).unwrap();
                let names = Extension::subject_alt_names(&request.subject_alt_names);
                let chain = self.0.chain(&order.names[0], &request.public_key.spki, &[names]);
                order.chain_pem = Some(pem(&chain));
                Ok(())
            }
        };
        async move { result }.boxed()
    }

    fn finished(&self, agent: Uuid, job: Uuid, result: JobResult) -> BoxFuture<'_, Result<(), WorkError>> {
        let mut state = self.1.0.lock();
        let order = state
            .orders
            .iter_mut()
            .find(|order| order.agent == agent && (order.deploy == job || order.job == job));
        let answer = match order {
            None => Err(WorkError::NotFound),
            Some(order) => {
                order.done = true;
                state.results.push((job, result));
                Ok(())
            }
        };
        async move { answer }.boxed()
    }
}

impl Certify for Authority {
    fn certify(
        &self,
        names: Vec<GeneralName>,
        spki: Vec<u8>,
        _: String,
    ) -> BoxFuture<'_, Result<Certified, CertifyError>> {
        let extensions =
            [Extension::subject_alt_names(&names), Extension::extended_key_usage(&[CLIENT_AUTH.to_owned()])];
        let chain = self.0.chain("agent", &spki, &extensions);
        let not_after_us = Certificate::parse(&chain[0]).unwrap().not_after.0 * 1_000_000;
        async move { Ok(Certified { chain_pem: pem(&chain), not_after_us }) }.boxed()
    }
}

impl Order {
    fn next(&self) -> AgentJob {
        let work = match &self.chain_pem {
            None => Work::Csr {
                key_type: KeyType::P256,
                names: self.names.clone(),
                subject: None,
                must_staple: false,
            },
            Some(chain_pem) => {
                Work::Deploy { chain_pem: chain_pem.clone(), key_pem: None, target: self.target.clone() }
            }
        };
        let job = if self.chain_pem.is_none() { self.job } else { self.deploy };
        AgentJob { job, certificate: self.certificate, name: "web".to_owned(), work, traceparent: None }
    }
}

fn pem(chain: &[Vec<u8>]) -> String {
    chain.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect()
}
