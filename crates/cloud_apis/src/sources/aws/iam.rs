//! Server certificates of AWS IAM.

use std::sync::Arc;

use aws_sdk_iam::Client;
use aws_sdk_iam::types::{ServerCertificateMetadata, Tag};
use aws_smithy_types::DateTime;
use futures_util::{StreamExt, stream};
use outbound::Deadline;
use x509::UnixTime;

use super::answer::{chain_of, missing};
use super::session::RegionalAccess;
use super::tagging::TagReader;
use super::uses::UsageLookup;
use clouds::{Chain, CloudCertificate, CloudResource, CloudStore, Sink, SourceError};

/// Certificates on one page: the maximum of IAM. The default quota of an account is 20 certificates.
const PAGE: i32 = 1_000;
/// Maximum certificates of an account that are processed concurrently.
const CERTIFICATES_AT_ONCE: usize = 16;
/// Tags on one page; a certificate has 50 at most.
const TAGS_PAGE: i32 = 100;
const PART: &str = "iam";

/// Lists all server certificates. Reports errors to the sink.
pub(super) async fn list(global: &RegionalAccess, sink: &Sink, uses: UsageLookup<'_>, deadline: Deadline) {
    match pages(global, sink, uses, deadline).await {
        Ok(()) => sink.listed(PART),
        Err(error) => sink.failed(PART, error),
    }
}

async fn pages(
    global: &RegionalAccess,
    sink: &Sink,
    uses: UsageLookup<'_>,
    deadline: Deadline,
) -> Result<(), SourceError> {
    let client = Client::new(&global.config);
    let tagging = TagReader::new(format!("{PART} tags"));
    let mut marker = None;
    loop {
        let page = global
            .call("iam:ListServerCertificates", deadline, || {
                client.list_server_certificates().max_items(PAGE).set_marker(marker.clone()).send()
            })
            .await?;
        let certificates: Vec<_> = page
            .server_certificate_metadata_list()
            .iter()
            .map(|metadata| one(global, &client, sink, metadata, uses.clone(), &tagging, deadline))
            .collect();
        let mut reading = stream::iter(certificates).buffer_unordered(CERTIFICATES_AT_ONCE);
        while let Some(certificate) = reading.next().await {
            sink.seen(PART, certificate?).await?;
        }
        marker = page.marker().map(str::to_owned).filter(|_| page.is_truncated());
        if marker.is_none() {
            return Ok(());
        }
    }
}

async fn one(
    global: &RegionalAccess,
    client: &Client,
    sink: &Sink,
    metadata: &ServerCertificateMetadata,
    uses: UsageLookup<'_>,
    tagging: &TagReader,
    deadline: Deadline,
) -> Result<CloudCertificate, SourceError> {
    let resource = CloudResource { store: CloudStore::AwsIam, name: Arc::from(metadata.arn()) };
    let time = |time: Option<&DateTime>| time.map_or(0, DateTime::secs);
    // A certificate in IAM never changes; a new certificate under the same name has another id.
    let marker = format!("{}/{}", metadata.server_certificate_id(), time(metadata.upload_date()));
    let name = metadata.server_certificate_name();
    let chain = async {
        match sink.unchanged(&resource, &marker) {
            Some(chain) => Ok(chain),
            None => read(global, client, name, deadline).await,
        }
    };
    let tags =
        async { Ok(tagging.of(sink, &resource, &marker, || tags_of(global, client, name, deadline)).await) };
    let (chain, tags) = futures_util::try_join!(chain, tags)?;
    let usage = uses.await;
    let mut used_by = usage.of(metadata.arn()).to_vec();
    used_by.extend_from_slice(usage.of(metadata.server_certificate_id()));
    if usage.incomplete {
        // A service that could not be listed may still use the certificate: keep the uses of the last listing.
        used_by.extend(sink.known(&resource).into_iter().flat_map(|known| known.used_by.clone()));
    }
    let not_after = metadata.expiration().map(|time| UnixTime(time.secs()));
    Ok(CloudCertificate { resource, chain, not_after, used_by, tags, marker })
}

async fn tags_of(
    global: &RegionalAccess,
    client: &Client,
    name: &str,
    deadline: Deadline,
) -> Result<Vec<(String, String)>, SourceError> {
    let found = global
        .call("iam:ListServerCertificateTags", deadline, || {
            client.list_server_certificate_tags().server_certificate_name(name).max_items(TAGS_PAGE).send()
        })
        .await?;
    let tag = |tag: &Tag| (tag.key().to_owned(), tag.value().to_owned());
    Ok(found.tags().iter().map(tag).collect())
}

async fn read(
    global: &RegionalAccess,
    client: &Client,
    name: &str,
    deadline: Deadline,
) -> Result<Chain, SourceError> {
    let operation = "iam:GetServerCertificate";
    let found = global
        .call(operation, deadline, || client.get_server_certificate().server_certificate_name(name).send())
        .await?;
    let certificate = found.server_certificate();
    let certificate =
        certificate.ok_or_else(|| SourceError::Failed { operation, answer: missing("certificate") })?;
    Ok(chain_of(Some(certificate.certificate_body()), certificate.certificate_chain()))
}
