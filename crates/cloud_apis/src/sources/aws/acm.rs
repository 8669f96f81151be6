//! Certificates of AWS Certificate Manager in one region.

use std::sync::Arc;

use aws_sdk_acm::Client;
use aws_sdk_acm::types::{
    CertificateKeyPairOrigin, CertificateStatus, CertificateSummary, Filters, KeyAlgorithm, Tag,
};
use aws_smithy_types::DateTime;
use futures_util::{StreamExt, stream};
use outbound::Deadline;
use x509::UnixTime;

use super::answer::chain_of;
use super::session::RegionalAccess;
use super::tagging::TagReader;
use super::uses::UsageLookup;
use clouds::{Chain, CloudCertificate, CloudResource, CloudStore, Sink, SourceError, Use};

/// Certificates on one page: the maximum of ACM.
const PAGE: i32 = 1_000;
/// Maximum certificates processed concurrently in one region. The pool limits how many of them are requested concurrently.
const CERTIFICATES_AT_ONCE: usize = 64;

/// Lists one region. Reports errors to the sink.
pub(super) async fn list(region: &RegionalAccess, sink: &Sink, uses: UsageLookup<'_>, deadline: Deadline) {
    let part = format!("{}/acm", region.name);
    match pages(region, sink, &part, uses, deadline).await {
        Ok(()) => sink.listed(part),
        Err(error) => sink.failed(part, error),
    }
}

async fn pages(
    region: &RegionalAccess,
    sink: &Sink,
    part: &str,
    uses: UsageLookup<'_>,
    deadline: Deadline,
) -> Result<(), SourceError> {
    let client = Client::new(&region.config);
    let tagging = TagReader::new(format!("{part} tags"));
    let mut token = None;
    loop {
        let page = region
            .call("acm:ListCertificates", deadline, || {
                client
                    .list_certificates()
                    .includes(all_key_types_filter())
                    .set_certificate_key_pair_origins(Some(all_origins()))
                    .max_items(PAGE)
                    .set_next_token(token.clone())
                    .send()
            })
            .await?;
        // Uses are looked up concurrently: a certificate waits for them only at the end.
        let certificates: Vec<_> = page
            .certificate_summary_list()
            .iter()
            .map(|summary| one(region, &client, sink, summary, uses.clone(), &tagging, deadline))
            .collect();
        let mut reading = stream::iter(certificates).buffer_unordered(CERTIFICATES_AT_ONCE);
        while let Some(certificate) = reading.next().await {
            if let Some(certificate) = certificate? {
                sink.seen(part, certificate).await?;
            }
        }
        token = page.next_token().map(str::to_owned);
        if token.is_none() {
            return Ok(());
        }
    }
}

/// Returns a filter that includes all key types. Without the filter, ACM omits every certificate whose key is not RSA with 1,024 or
/// 2,048 bits.
fn all_key_types_filter() -> Filters {
    let all = KeyAlgorithm::values().iter().map(|name| KeyAlgorithm::from(*name)).collect();
    Filters::builder().set_key_types(Some(all)).build()
}

/// Returns all origins of key pairs, as a filter. Without the filter, ACM omits certificates obtained by ACME.
fn all_origins() -> Vec<CertificateKeyPairOrigin> {
    CertificateKeyPairOrigin::values().iter().map(|name| CertificateKeyPairOrigin::from(*name)).collect()
}

async fn one(
    region: &RegionalAccess,
    client: &Client,
    sink: &Sink,
    summary: &CertificateSummary,
    uses: UsageLookup<'_>,
    tagging: &TagReader,
    deadline: Deadline,
) -> Result<Option<CloudCertificate>, SourceError> {
    let Some(arn) = summary.certificate_arn() else { return Ok(None) };
    let resource = CloudResource { store: CloudStore::AwsAcm, name: Arc::from(arn) };
    let marker = marker(summary);
    let unchanged = sink.unchanged(&resource, &marker);
    let new = unchanged.is_none();
    let chain = async {
        match (unchanged, unissued_status(summary)) {
            (Some(chain), _) => Ok(chain),
            (None, Some(status)) => Ok(Chain::None(format!("the ACM status is {status}"))),
            (None, None) => read(region, client, arn, deadline).await,
        }
    };
    let used_by = async {
        let usage = uses.await;
        let used_by = usage.of(arn).to_vec();
        if !used_by.is_empty() || summary.in_use() != Some(true) {
            return Ok(used_by);
        }
        match sink.known(&resource) {
            Some(known) if !new => Ok(known.used_by.clone()),
            _ => described(region, client, arn, deadline).await,
        }
    };
    let tags =
        async { Ok(tagging.of(sink, &resource, &marker, || tags_of(region, client, arn, deadline)).await) };
    // Each operation has its own quota, so none delays another.
    let (chain, used_by, tags) = futures_util::try_join!(chain, used_by, tags)?;
    let not_after = summary.not_after().map(|time| UnixTime(time.secs()));
    Ok(Some(CloudCertificate { resource, chain, not_after, used_by, tags, marker }))
}

/// Returns a text that changes when a certificate is renewed, imported again, revoked, or put to use.
fn marker(summary: &CertificateSummary) -> String {
    let time = |time: Option<&DateTime>| time.map_or(0, DateTime::secs);
    format!(
        "{}/{}/{}/{}/{}/{}",
        summary.status().map_or("", CertificateStatus::as_str),
        time(summary.not_after()),
        time(summary.issued_at()),
        time(summary.imported_at()),
        time(summary.revoked_at()),
        summary.in_use().unwrap_or_default(),
    )
}

/// Returns the status of a certificate that has not been issued.
fn unissued_status(summary: &CertificateSummary) -> Option<&str> {
    match summary.status()? {
        status @ (CertificateStatus::PendingValidation
        | CertificateStatus::Failed
        | CertificateStatus::ValidationTimedOut) => Some(status.as_str()),
        _ => None,
    }
}

async fn read(
    region: &RegionalAccess,
    client: &Client,
    arn: &str,
    deadline: Deadline,
) -> Result<Chain, SourceError> {
    let got = region
        .call("acm:GetCertificate", deadline, || client.get_certificate().certificate_arn(arn).send())
        .await;
    let found = match got {
        Ok(found) => found,
        // A certificate that cannot be read does not end the listing: it is listed without a chain, with the reason from AWS.
        Err(SourceError::Failed { answer, .. }) if answer.verdict == outbound::pool::Verdict::Final => {
            return Ok(Chain::None(answer.to_string()));
        }
        Err(error) => return Err(error),
    };
    Ok(chain_of(found.certificate(), found.certificate_chain()))
}

async fn tags_of(
    region: &RegionalAccess,
    client: &Client,
    arn: &str,
    deadline: Deadline,
) -> Result<Vec<(String, String)>, SourceError> {
    let found = region
        .call("acm:ListTagsForCertificate", deadline, || {
            client.list_tags_for_certificate().certificate_arn(arn).send()
        })
        .await?;
    let tag = |tag: &Tag| (tag.key().to_owned(), tag.value().unwrap_or_default().to_owned());
    Ok(found.tags().iter().map(tag).collect())
}

/// Returns uses from ACM's description of the certificate, for services that were not listed.
async fn described(
    region: &RegionalAccess,
    client: &Client,
    arn: &str,
    deadline: Deadline,
) -> Result<Vec<Use>, SourceError> {
    let found = region
        .call("acm:DescribeCertificate", deadline, || {
            client.describe_certificate().certificate_arn(arn).send()
        })
        .await?;
    let certificate = found.certificate();
    let users = certificate.map(|certificate| certificate.in_use_by()).unwrap_or_default();
    Ok(users.iter().map(|by| Use { by: by.clone(), hosts: Vec::new() }).collect())
}
