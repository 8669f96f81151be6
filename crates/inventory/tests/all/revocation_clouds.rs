//! Tests of revocation checks of certificates in cloud stores.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clouds::{Chain, CloudCertificate, CloudResource, CloudSource, CloudStore, Provider, Sink, SourceError};
use fleet::revocation::TestCrlSpec;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use inventory::sources::{Observer, observe};
use scan::Trusted;
use tokio_util::sync::CancellationToken;

use crate::limits::options;
use crate::revoking::{RevokingSite, SERIAL, entry, with_checker};

/// A source with fixed contents.
struct Safe(Arc<str>, Vec<Vec<Vec<u8>>>);

impl CloudSource for Safe {
    fn name(&self) -> &Arc<str> {
        &self.0
    }

    fn provider(&self) -> Provider {
        Provider::Aws
    }

    fn list<'a>(&'a self, sink: &'a Sink, _: outbound::Deadline) -> BoxFuture<'a, Result<(), SourceError>> {
        async move {
            for (number, chain) in self.1.iter().enumerate() {
                let chain = match chain.as_slice() {
                    [] => Chain::None("being issued".to_owned()),
                    chain => Chain::Read(chain.to_vec()),
                };
                let resource =
                    CloudResource { store: CloudStore::AwsAcm, name: format!("arn:{number}").into() };
                let certificate = CloudCertificate {
                    resource,
                    chain,
                    not_after: None,
                    used_by: Vec::new(),
                    tags: None,
                    marker: "1".to_owned(),
                };
                sink.seen("all", certificate).await?;
            }
            sink.listed("all");
            Ok(())
        }
        .boxed()
    }
}

/// Certificates in cloud stores are checked for revocation like served certificates, if revocation checks are enabled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_certificates_are_checked_for_revocation() {
    let resource = RevokingSite::new().await;
    resource.publish("/a.crl", &TestCrlSpec { revoked: vec![entry(SERIAL, None)], ..TestCrlSpec::default() });
    let above = resource.issuer.der.to_vec();
    let chain_of = |serial: &[u8]| vec![resource.leaf(serial, "/a.crl").der.to_vec(), above.clone()];
    let alone = vec![resource.leaf(&[3], "/a.crl").der.to_vec()];
    let source: Arc<dyn CloudSource> =
        Arc::new(Safe("aws/1".into(), vec![chain_of(SERIAL), chain_of(&[2]), alone, Vec::new()]));
    let trusted = || {
        let mut trusted = Trusted::trusting_none();
        trusted.add_bytes(x509::pem::encode("CERTIFICATE", &resource.issuer.der).as_bytes());
        trusted
    };
    let with_revocation = || with_checker(&resource.checker);
    for (options, trusted, words) in [
        // Anyone who stored the certificates chose their URLs. Nothing is fetched for untrusted chains.
        (with_revocation(), Trusted::trusting_none(), ["unknown", "unknown", "unknown", ""]),
        (with_revocation(), trusted(), ["revoked", "good", "good", ""]),
        (options(), trusted(), ["", "", "", ""]),
    ] {
        let observer = Observer::new(&options, trusted, None);
        let (sources, stop) = (vec![source.clone()], CancellationToken::new());
        let mut run = observe(sources, HashMap::new(), Duration::from_secs(60), observer, stop);
        let mut seen = HashMap::new();
        while let Some(observation) = run.observations.recv().await {
            seen.insert(observation.target.host_text().to_owned(), observation);
        }
        assert_eq!(run.ended.await.unwrap().unwrap()[0].certificates, 4);
        assert_eq!(seen.len(), 4, "none is lost");
        for (number, word) in words.into_iter().enumerate() {
            let observation = &seen[&format!("arn:{number}")];
            let verdict = observation.revocation.first().map_or("", |(_, verdict)| verdict.code());
            assert_eq!(verdict, word, "{number}");
            let reported = observation.findings.iter().any(|finding| finding.rule.code == "endpoint.revoked");
            assert_eq!(reported, word == "revoked", "{number}");
        }
    }
    assert_eq!(resource.server.counts().requests, 1, "one list for all");
    resource.server.stop().await;
}
