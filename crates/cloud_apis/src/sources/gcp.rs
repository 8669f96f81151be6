//! Google Cloud: certificates of Certificate Manager in all locations of a project, the certificate maps that use them, and the SSL
//! certificates of Compute Engine load balancers.
//!
//! Listings contain the complete certificates, so no certificate is read separately. Locations that Google could not reach are
//! reported as failed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use google_cloud_auth::credentials::Credentials;
use google_cloud_certificatemanager_v1::client::CertificateManager;
use google_cloud_certificatemanager_v1::model::{Certificate, certificate_map_entry};
use google_cloud_compute_v1::client::SslCertificates;
use google_cloud_compute_v1::model::SslCertificate;
use google_cloud_gax::error::Error;
use google_cloud_gax::retry_policy::NeverRetry;
use outbound::Deadline;
use outbound::pool::Verdict;
use x509::UnixTime;

pub use clouds::GcpProject;
use clouds::ProviderPool;
use clouds::bounded;
use clouds::chain;
use clouds::{
    ApiError, Chain, CloudCertificate, CloudResource, CloudSource, CloudStore, Pools, Provider, Sink,
    SourceError, Use,
};
/// Credentials for an endpoint without authentication.
pub use google_cloud_auth::credentials::anonymous::Builder as Anonymous;

/// Certificates on one page; a certificate with its chain has about 5 KB.
const PAGE: i32 = 100;
/// Resources on one page of the Compute API: its maximum.
const COMPUTE_PAGE: u32 = 500;
/// Maximum certificate maps per project whose entries are read.
const MAPS_MAX: usize = 1_000;

/// Configuration of access to Google Cloud.
#[derive(Clone, Debug, Default)]
pub struct GcpOptions {
    /// Endpoint that replaces the default ones of both services, for tests and private networks.
    pub endpoint: Option<String>,
    /// Credentials that replace the application default credentials.
    pub credentials: Option<Credentials>,
}

/// Source of the certificates of one Google Cloud project.
pub struct GcpSource {
    name: Arc<str>,
    project: String,
    manager: CertificateManager,
    compute: SslCertificates,
    pool: ProviderPool,
}

impl GcpSource {
    /// Creates a source for `project`. It uses the application default credentials: `GOOGLE_APPLICATION_CREDENTIALS`, the
    /// credentials of gcloud, or the metadata server. Sends no request before the first listing.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when there are no credentials.
    #[crate::boxed]
    pub async fn new(project: GcpProject, options: &GcpOptions, pools: &Pools) -> Result<Self, SourceError> {
        // The pool retries: it must see every throttling response.
        let mut manager = CertificateManager::builder().with_retry_policy(NeverRetry);
        let mut compute = SslCertificates::builder().with_retry_policy(NeverRetry);
        if let Some(endpoint) = &options.endpoint {
            (manager, compute) = (manager.with_endpoint(endpoint), compute.with_endpoint(endpoint));
        }
        if let Some(credentials) = &options.credentials {
            manager = manager.with_credentials(credentials.clone());
            compute = compute.with_credentials(credentials.clone());
        }
        let manager = manager.build().await.map_err(|error| SourceError::Configuration(chain(&error)))?;
        let compute = compute.build().await.map_err(|error| SourceError::Configuration(chain(&error)))?;
        Ok(Self {
            name: project.source(),
            pool: pools.of(Provider::Gcp, &project.project),
            project: project.project,
            manager,
            compute,
        })
    }

    async fn list_all(&self, sink: &Sink, deadline: Deadline) -> Result<(), SourceError> {
        let (managed, classic) =
            futures_util::join!(self.list_managed(sink, deadline), self.list_classic(sink, deadline));
        // If either service fails, the listing is incomplete, and no certificate is reported as gone.
        managed.and(classic)
    }

    async fn list_managed(&self, sink: &Sink, deadline: Deadline) -> Result<(), SourceError> {
        let uses = match self.maps(deadline).await {
            Ok(uses) => uses,
            Err(error) => {
                sink.failed("certificateMaps", error);
                HashMap::new()
            }
        };
        let (mut token, mut locations, mut unreachable) = (String::new(), BTreeSet::new(), BTreeSet::new());
        loop {
            let page = self.manager_page(&token, deadline).await?;
            unreachable.extend(page.unreachable.iter().map(|name| location_part(name)));
            for certificate in page.certificates {
                let part = location_part(&certificate.name);
                sink.seen(&part, managed(certificate, &uses, sink)).await?;
                locations.insert(part);
            }
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        for part in &unreachable {
            sink.failed(part, SourceError::Unreachable);
        }
        for part in locations.difference(&unreachable) {
            sink.listed(part);
        }
        Ok(())
    }

    async fn manager_page(
        &self,
        token: &str,
        deadline: Deadline,
    ) -> Result<google_cloud_certificatemanager_v1::model::ListCertificatesResponse, SourceError> {
        let parent = format!("projects/{}/locations/-", self.project);
        let fetch = || async {
            let request = self.manager.list_certificates().set_parent(&parent).set_page_size(PAGE);
            request.set_page_token(token).send().await.map_err(|error| from_google_error(&error))
        };
        Ok(self.pool.call("certificatemanager:Read", deadline, fetch).await?)
    }

    /// Returns the uses by certificate: the targets of certificate maps, with the host names of the map entries.
    async fn maps(&self, deadline: Deadline) -> Result<HashMap<String, Vec<Use>>, SourceError> {
        let parent = format!("projects/{}/locations/global", self.project);
        let (mut maps, mut token) = (Vec::new(), String::new());
        loop {
            let fetch = || async {
                let request = self.manager.list_certificate_maps().set_parent(&parent).set_page_size(PAGE);
                request.set_page_token(&token).send().await.map_err(|error| from_google_error(&error))
            };
            let page = self.pool.call("certificatemanager:Read", deadline, fetch).await?;
            maps.extend(page.certificate_maps);
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
            if maps.len() >= MAPS_MAX {
                return Err(SourceError::TooMany { what: "certificate maps", max: MAPS_MAX });
            }
        }
        let mut uses = HashMap::new();
        for map in maps {
            self.entries(&map.name, &mut uses, deadline).await?;
        }
        Ok(uses)
    }

    async fn entries(
        &self,
        map: &str,
        uses: &mut HashMap<String, Vec<Use>>,
        deadline: Deadline,
    ) -> Result<(), SourceError> {
        let mut token = String::new();
        loop {
            let fetch = || async {
                let request = self.manager.list_certificate_map_entries().set_parent(map).set_page_size(PAGE);
                request.set_page_token(&token).send().await.map_err(|error| from_google_error(&error))
            };
            let page = self.pool.call("certificatemanager:Read", deadline, fetch).await?;
            for entry in page.certificate_map_entries {
                let hosts = match &entry.r#match {
                    Some(certificate_map_entry::Match::Hostname(host)) => vec![host.clone()],
                    _ => Vec::new(),
                };
                for certificate in entry.certificates {
                    let found = Use { by: map.to_owned(), hosts: hosts.clone() };
                    uses.entry(certificate).or_default().push(found);
                }
            }
            token = page.next_page_token;
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    async fn list_classic(&self, sink: &Sink, deadline: Deadline) -> Result<(), SourceError> {
        let (mut token, mut scopes, mut unreachable) = (None::<String>, BTreeSet::new(), BTreeSet::new());
        loop {
            let fetch = || async {
                let request = self.compute.aggregated_list().set_project(&self.project);
                let request = request.set_max_results(COMPUTE_PAGE);
                request
                    .set_or_clear_page_token(token.clone())
                    .send()
                    .await
                    .map_err(|error| from_google_error(&error))
            };
            let page = self.pool.call("compute:Read", deadline, fetch).await?;
            unreachable.extend(page.unreachables.iter().map(|scope| format!("compute/{scope}")));
            for (scope, listed) in page.items {
                let part = format!("compute/{scope}");
                for certificate in listed.ssl_certificates {
                    let Some(certificate) = classic(certificate, &self.project, &scope, sink) else {
                        continue;
                    };
                    sink.seen(&part, certificate).await?;
                }
                scopes.insert(part);
            }
            token = page.next_page_token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        for part in &unreachable {
            sink.failed(part, SourceError::Unreachable);
        }
        for part in scopes.difference(&unreachable) {
            sink.listed(part);
        }
        Ok(())
    }
}

impl CloudSource for GcpSource {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn provider(&self) -> Provider {
        Provider::Gcp
    }

    fn list<'a>(&'a self, sink: &'a Sink, deadline: Deadline) -> BoxFuture<'a, Result<(), SourceError>> {
        self.list_all(sink, deadline).boxed()
    }
}

/// Returns `certificate-manager/LOCATION` for the name of a resource or location.
fn location_part(name: &str) -> String {
    let location = match name.split_once("/locations/") {
        Some((_, rest)) => rest.split('/').next().unwrap_or_default(),
        None => name.rsplit('/').next().unwrap_or_default(),
    };
    format!("certificate-manager/{location}")
}

fn managed(certificate: Certificate, uses: &HashMap<String, Vec<Use>>, sink: &Sink) -> CloudCertificate {
    let resource =
        CloudResource { store: CloudStore::GcpCertificateManager, name: certificate.name.as_str().into() };
    let updated = certificate.update_time.as_ref().map(|time| time.seconds());
    let expires = certificate.expire_time.as_ref().map(|time| time.seconds());
    let marker = format!("{}/{}", updated.unwrap_or_default(), expires.unwrap_or_default());
    let chain = sink.unchanged(&resource, &marker).unwrap_or_else(|| chain_of(&certificate.pem_certificate));
    let used_by = uses.get(&certificate.name).cloned().unwrap_or_default();
    let not_after = expires.map(UnixTime);
    let tags = Some(bounded(certificate.labels));
    CloudCertificate { resource, chain, not_after, used_by, tags, marker }
}

fn classic(certificate: SslCertificate, project: &str, scope: &str, sink: &Sink) -> Option<CloudCertificate> {
    let name: Arc<str> =
        format!("projects/{project}/{scope}/sslCertificates/{}", certificate.name.as_ref()?).into();
    let resource = CloudResource { store: CloudStore::GcpCompute, name };
    let expires = certificate.expire_time.as_deref().unwrap_or_default();
    let created = certificate.creation_timestamp.as_deref().unwrap_or_default();
    // Certificates change only when Google renews managed ones, which changes the expiry.
    let marker = format!("{}/{created}/{expires}", certificate.id.unwrap_or_default());
    let pem = certificate.certificate.as_deref().unwrap_or_default();
    let chain = sink.unchanged(&resource, &marker).unwrap_or_else(|| chain_of(pem));
    let not_after = expires.parse::<jiff::Timestamp>().ok().map(|time| UnixTime(time.as_second()));
    // SSL certificates of Compute Engine have no labels.
    Some(CloudCertificate { resource, chain, not_after, used_by: Vec::new(), tags: None, marker })
}

fn chain_of(pem: &str) -> Chain {
    let chain: Vec<Vec<u8>> = x509::pem::certificates(pem.as_bytes()).map(|(_, der)| der).collect();
    if chain.is_empty() {
        Chain::None("the certificate is still being issued".to_owned())
    } else {
        Chain::Read(chain)
    }
}

fn from_google_error(error: &Error) -> ApiError {
    if error.is_authentication() {
        return ApiError::credentials(error);
    }
    if let Some(status) = error.http_status_code() {
        let retry_after = error.http_headers().and_then(|headers| headers.get("retry-after")?.to_str().ok());
        let code = error.status().map(|status| status.code.name().to_owned()).unwrap_or_default();
        let message = error.status().map_or_else(|| chain(error), |status| status.message.clone());
        let mut found = ApiError::of_status(status, &code, &message, retry_after);
        if status == 401 {
            // The token became invalid before it expired; the credentials fetch a new one in the background.
            found.verdict = Verdict::Transient;
        }
        return found;
    }
    if error.is_deserialization() {
        return ApiError::malformed(&chain(error));
    }
    ApiError::unreachable(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_is_parsed_from_resource_names_and_bare_locations() {
        for (name, part) in [
            ("projects/p/locations/global/certificates/a", "certificate-manager/global"),
            ("projects/p/locations/europe-west1", "certificate-manager/europe-west1"),
            ("europe-west1", "certificate-manager/europe-west1"),
        ] {
            assert_eq!(location_part(name), part);
        }
    }
}
