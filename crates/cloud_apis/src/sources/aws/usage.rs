//! Lists the resources that use certificates: load balancers, CloudFront, API Gateway.

use std::collections::HashMap;

use outbound::Deadline;

use super::session::RegionalAccess;
use clouds::{Sink, SourceError, Use};

/// Maximum load balancers of a region; the default AWS quota is 50 of each kind.
const BALANCERS_MAX: usize = 5_000;
/// Elements on one page: the maximum of these APIs.
const PAGE: i32 = 400;
const DOMAINS_PAGE: i32 = 500;
const DISTRIBUTIONS_PAGE: i32 = 100;

/// Uses by certificate ARN. IAM certificates are also stored by id, because CloudFront returns only the id.
#[derive(Debug, Default)]
pub(super) struct Usage {
    by_certificate: HashMap<String, Vec<Use>>,
    /// Whether a service could not be listed, so that its uses are unknown.
    pub(super) incomplete: bool,
}

impl Usage {
    pub(super) fn of(&self, certificate: &str) -> &[Use] {
        self.by_certificate.get(certificate).map_or(&[], Vec::as_slice)
    }

    pub(super) fn add(&mut self, more: &Self) {
        for (certificate, uses) in &more.by_certificate {
            self.by_certificate.entry(certificate.clone()).or_default().extend(uses.iter().cloned());
        }
        self.incomplete |= more.incomplete;
    }

    fn note(&mut self, certificate: Option<&str>, by: &str, hosts: impl IntoIterator<Item = String>) {
        let Some(certificate) = certificate.filter(|certificate| !certificate.is_empty()) else { return };
        let found = Use { by: by.to_owned(), hosts: hosts.into_iter().collect() };
        self.by_certificate.entry(certificate.to_owned()).or_default().push(found);
    }
}

/// Lists the resources that use certificates in one region.
pub(super) async fn region_usage(region: &RegionalAccess, sink: &Sink, deadline: Deadline) -> Usage {
    let (balancers, domains) =
        futures_util::join!(balancers_usage(region, deadline), domains_usage(region, deadline));
    let mut usage = Usage::default();
    for (part, found) in [("elasticloadbalancing", balancers), ("apigateway", domains)] {
        match found {
            Ok(found) => usage.add(&found),
            Err(error) => {
                usage.incomplete = true;
                sink.failed(format!("{}/{part}", region.name), error);
            }
        }
    }
    usage
}

async fn balancers_usage(region: &RegionalAccess, deadline: Deadline) -> Result<Usage, SourceError> {
    let client = aws_sdk_elasticloadbalancingv2::Client::new(&region.config);
    let (mut balancers, mut marker) = (Vec::new(), None);
    loop {
        let page = region
            .call("elasticloadbalancing:DescribeLoadBalancers", deadline, || {
                client.describe_load_balancers().page_size(PAGE).set_marker(marker.clone()).send()
            })
            .await?;
        balancers.extend(page.load_balancers().iter().filter_map(|balancer| {
            let host = balancer.dns_name().map(str::to_owned);
            Some((balancer.load_balancer_arn()?.to_owned(), host))
        }));
        marker = page.next_marker().map(str::to_owned);
        if marker.is_none() {
            break;
        }
        if balancers.len() >= BALANCERS_MAX {
            return Err(SourceError::TooMany { what: "load balancers", max: BALANCERS_MAX });
        }
    }
    let listeners =
        balancers.iter().map(|(arn, host)| balancer_usage(region, &client, arn, host.as_deref(), deadline));
    let mut usage = Usage::default();
    for found in futures_util::future::try_join_all(listeners).await? {
        usage.add(&found);
    }
    Ok(usage)
}

/// Lists the certificates of a balancer's listeners. TLS listeners may have additional certificates, selected by SNI.
async fn balancer_usage(
    region: &RegionalAccess,
    client: &aws_sdk_elasticloadbalancingv2::Client,
    balancer: &str,
    host: Option<&str>,
    deadline: Deadline,
) -> Result<Usage, SourceError> {
    let mut usage = Usage::default();
    let mut marker = None;
    loop {
        let page = region
            .call("elasticloadbalancing:DescribeListeners", deadline, || {
                client
                    .describe_listeners()
                    .load_balancer_arn(balancer)
                    .page_size(PAGE)
                    .set_marker(marker.clone())
                    .send()
            })
            .await?;
        for listener in page.listeners().iter().filter(|listener| !listener.certificates().is_empty()) {
            let Some(arn) = listener.listener_arn() else { continue };
            let mut more = None;
            loop {
                let certificates = region
                    .call("elasticloadbalancing:DescribeListenerCertificates", deadline, || {
                        client
                            .describe_listener_certificates()
                            .listener_arn(arn)
                            .page_size(PAGE)
                            .set_marker(more.clone())
                            .send()
                    })
                    .await?;
                for certificate in certificates.certificates() {
                    usage.note(certificate.certificate_arn(), balancer, host.map(str::to_owned));
                }
                more = certificates.next_marker().map(str::to_owned);
                if more.is_none() {
                    break;
                }
            }
        }
        marker = page.next_marker().map(str::to_owned);
        if marker.is_none() {
            return Ok(usage);
        }
    }
}

async fn domains_usage(region: &RegionalAccess, deadline: Deadline) -> Result<Usage, SourceError> {
    let client = aws_sdk_apigateway::Client::new(&region.config);
    let (mut usage, mut position) = (Usage::default(), None);
    loop {
        let page = region
            .call("apigateway:GetDomainNames", deadline, || {
                client.get_domain_names().limit(DOMAINS_PAGE).set_position(position.clone()).send()
            })
            .await?;
        for domain in page.items() {
            let Some(name) = domain.domain_name() else { continue };
            let by = domain
                .domain_name_arn()
                .map_or_else(|| format!("apigateway:{}/{name}", region.name), str::to_owned);
            for certificate in [
                domain.certificate_arn(),
                domain.regional_certificate_arn(),
                domain.ownership_verification_certificate_arn(),
            ] {
                usage.note(certificate, &by, [name.to_owned()]);
            }
        }
        position = page.position().map(str::to_owned);
        if position.is_none() {
            return Ok(usage);
        }
    }
}

/// Lists the CloudFront distributions that use certificates.
pub(super) async fn distributions_usage(global: &RegionalAccess, sink: &Sink, deadline: Deadline) -> Usage {
    match distributions(global, deadline).await {
        Ok(usage) => usage,
        Err(error) => {
            sink.failed("cloudfront", error);
            Usage { incomplete: true, ..Usage::default() }
        }
    }
}

async fn distributions(global: &RegionalAccess, deadline: Deadline) -> Result<Usage, SourceError> {
    let client = aws_sdk_cloudfront::Client::new(&global.config);
    let (mut usage, mut marker) = (Usage::default(), None);
    loop {
        let page = global
            .call("cloudfront:ListDistributions", deadline, || {
                client.list_distributions().max_items(DISTRIBUTIONS_PAGE).set_marker(marker.clone()).send()
            })
            .await?;
        let Some(list) = page.distribution_list() else { return Ok(usage) };
        for distribution in list.items() {
            let Some(certificate) = distribution.viewer_certificate() else { continue };
            let aliases = distribution.aliases().map(|aliases| aliases.items().to_vec()).unwrap_or_default();
            for id in [certificate.acm_certificate_arn(), certificate.iam_certificate_id()] {
                usage.note(id, distribution.arn(), aliases.clone());
            }
        }
        marker = list.next_marker().map(str::to_owned);
        if marker.is_none() {
            return Ok(usage);
        }
    }
}
