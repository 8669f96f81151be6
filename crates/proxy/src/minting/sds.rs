//! Envoy's secret discovery service. On a stream, a consumer subscribes to names, and gets each leaf when it is available and after
//! each renewal. Names without a leaf are reported as removed (delta), or omitted (state of the world, which cannot express
//! removal).

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use prost::Message;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use zeroize::Zeroize;

use super::consumer::Consumer;
use super::leaf_issuer::NoLeaf;
use super::metrics::{MintingProtocol, Streaming as Counted};
use super::service::MintingService;
use super::subscriptions::{Change, NAME_MAX, Refused, Subscriptions, version_of};
use crate::mint::Leaf;
use proto::secret_discovery_service_server::SecretDiscoveryService;
use proto::{
    Any, DataSource, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    Resource, Secret, TlsCertificate,
};

/// Protobuf messages, client and server of the secret discovery service, generated from the protocol definition. The generated code
/// is checked in, so that a build needs no protobuf compiler. A test generates it again and compares the result.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod proto {
    include!("envoy.service.secret.v3.rs");
}

/// Type URL of an Envoy secret, the resource type of this service.
pub const TYPE_URL: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Maximum bytes that one name adds to a request: a name of maximum length, as a subscription and again with its version.
const NAME_BYTES: usize = 640;

/// Returns the maximum bytes of a discovery request for `names_per_stream_max` names: from 256 KiB to 4 MiB.
pub(super) fn message_max(names_per_stream_max: usize) -> usize {
    names_per_stream_max.saturating_mul(NAME_BYTES).clamp(256 << 10, 4 << 20)
}

/// Secret discovery for one connection.
pub(super) struct SecretDiscovery {
    shared: Arc<MintingService>,
    consumer: Consumer,
}

impl SecretDiscovery {
    pub(super) fn new(shared: Arc<MintingService>, consumer: Consumer) -> Self {
        Self { shared, consumer }
    }

    fn stream<R>(&self, request: Streaming<R>) -> Result<SecretStream<R>, Status> {
        let permit = Arc::clone(&self.shared.streams).try_acquire_owned();
        let permit = permit.map_err(|_| Status::resource_exhausted("too many concurrent streams"))?;
        Ok(SecretStream {
            request,
            subscriptions: Subscriptions::new(Arc::clone(&self.shared), self.consumer.clone()),
            shared: Arc::clone(&self.shared),
            stopping: self.shared.tasks.stopping(),
            response: 0,
            _counted: self.shared.metrics.streaming(),
            _permit: permit,
        })
    }
}

struct SecretStream<R> {
    request: Streaming<R>,
    subscriptions: Subscriptions,
    shared: Arc<MintingService>,
    stopping: CancellationToken,
    /// Number of responses so far, used as nonce for acknowledgements.
    response: u64,
    _counted: Counted,
    _permit: OwnedSemaphorePermit,
}

/// Event of a stream: a request of the consumer, or a change of a leaf.
enum Event<R> {
    Requested(R),
    Changed(Change),
}

impl<R> SecretStream<R> {
    /// Returns the next event; `None` at the end of the stream.
    async fn event(&mut self) -> Result<Option<Event<R>>, Status> {
        tokio::select! {
            () = self.stopping.cancelled() => Ok(None),
            request = self.request.message() => Ok(request?.map(Event::Requested)),
            change = self.subscriptions.changed() => Ok(Some(Event::Changed(change))),
        }
    }

    fn nonce(&mut self) -> String {
        self.response += 1;
        self.response.to_string()
    }

    fn record_nack(&self, error: Option<&proto::Status>) {
        if let Some(error) = error {
            self.shared.metrics.nack();
            tracing::warn!(error = error.message, "a consumer rejected a leaf certificate");
        }
    }
}

fn fits(type_url: &str) -> Result<(), Status> {
    match type_url.is_empty() || type_url == TYPE_URL {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!("only resources of type {TYPE_URL} are available"))),
    }
}

fn refused(refused: Refused) -> Status {
    match refused {
        Refused::TooMany => Status::resource_exhausted("too many names"),
        Refused::TooLong => Status::invalid_argument(format!("a name must have at most {NAME_MAX} bytes")),
    }
}

fn resource_of(name: &str, leaf: &Leaf) -> Option<Any> {
    let key = leaf.key.to_pkcs8_pem()?;
    let certificate = TlsCertificate {
        certificate_chain: Some(DataSource { inline_bytes: leaf.chain_pem().into_bytes() }),
        private_key: Some(DataSource { inline_bytes: key.as_bytes().to_vec() }),
    };
    let mut secret = Secret { name: name.to_owned(), tls_certificate: Some(certificate) };
    let value = secret.encode_to_vec();
    if let Some(key) = secret.tls_certificate.as_mut().and_then(|all| all.private_key.as_mut()) {
        key.inline_bytes.zeroize();
    }
    Some(Any { type_url: TYPE_URL.to_owned(), value })
}

/// A stream of responses in one variant of the protocol: delta, or state of the world.
trait DiscoveryStream: Sized + Send + 'static {
    type Notification: 'static;

    /// Returns the next response; `None` at the end of the stream.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Notification>, Status>> + Send;

    fn all(self) -> BoxStream<'static, Result<Self::Notification, Status>> {
        let response = |mut responses: Self| async move {
            Ok(responses.next().await?.map(|response| (response, responses)))
        };
        stream::try_unfold(self, response).boxed()
    }
}

impl DiscoveryStream for SecretStream<DeltaDiscoveryRequest> {
    type Notification = DeltaDiscoveryResponse;

    async fn next(&mut self) -> Result<Option<DeltaDiscoveryResponse>, Status> {
        loop {
            match self.event().await? {
                None => return Ok(None),
                Some(Event::Requested(request)) => self.take(&request)?,
                Some(Event::Changed(change)) => return Ok(Some(self.response(change))),
            }
        }
    }
}

impl SecretStream<DeltaDiscoveryRequest> {
    fn take(&mut self, request: &DeltaDiscoveryRequest) -> Result<(), Status> {
        fits(&request.type_url)?;
        self.record_nack(request.error_detail.as_ref());
        for name in &request.resource_names_unsubscribe {
            self.subscriptions.remove(name);
        }
        for name in request.resource_names_subscribe.iter().filter(|name| *name != "*") {
            let has = request.initial_resource_versions.get(name).map_or("", String::as_str);
            // A repeated subscription sends the resource again.
            self.subscriptions.add(name, has).map_err(refused)?;
        }
        Ok(())
    }

    fn response(&mut self, change: Change) -> DeltaDiscoveryResponse {
        let mut response = DeltaDiscoveryResponse {
            type_url: TYPE_URL.to_owned(),
            nonce: self.nonce(),
            ..DeltaDiscoveryResponse::default()
        };
        match change {
            Change::Leaf(name, leaf, version) => {
                response.system_version_info.clone_from(&version);
                let resource = resource_of(&name, &leaf);
                response.resources.push(Resource { version, resource, name });
            }
            Change::Removed(name) => response.removed_resources.push(name),
        }
        response
    }
}

impl DiscoveryStream for SecretStream<DiscoveryRequest> {
    type Notification = DiscoveryResponse;

    async fn next(&mut self) -> Result<Option<DiscoveryResponse>, Status> {
        loop {
            match self.event().await? {
                None => return Ok(None),
                Some(Event::Requested(request)) => self.take(&request)?,
                Some(Event::Changed(Change::Leaf(name, leaf, version))) => {
                    return Ok(Some(DiscoveryResponse {
                        version_info: version,
                        resources: resource_of(&name, &leaf).into_iter().collect(),
                        type_url: TYPE_URL.to_owned(),
                        nonce: self.nonce(),
                    }));
                }
                Some(Event::Changed(Change::Removed(_))) => {}
            }
        }
    }
}

impl SecretStream<DiscoveryRequest> {
    fn take(&mut self, request: &DiscoveryRequest) -> Result<(), Status> {
        fits(&request.type_url)?;
        self.record_nack(request.error_detail.as_ref());
        // Ignore requests that precede our last response: the consumer sends them again.
        if !request.response_nonce.is_empty() && request.response_nonce != self.response.to_string() {
            return Ok(());
        }
        if request.resource_names.len() > self.shared.names_per_stream_max {
            return Err(refused(Refused::TooMany));
        }
        let wanted: HashSet<&str> = request.resource_names.iter().map(String::as_str).collect();
        let unwanted: Vec<String> =
            self.subscriptions.names().filter(|name| !wanted.contains(name.as_str())).cloned().collect();
        unwanted.iter().for_each(|name| self.subscriptions.remove(name));
        for name in wanted {
            if !self.subscriptions.contains(name) {
                self.subscriptions.add(name, "").map_err(refused)?;
            }
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl SecretDiscoveryService for SecretDiscovery {
    type DeltaSecretsStream = BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;
    type StreamSecretsStream = BoxStream<'static, Result<DiscoveryResponse, Status>>;

    async fn delta_secrets(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaSecretsStream>, Status> {
        Ok(Response::new(self.stream(request.into_inner())?.all()))
    }

    async fn stream_secrets(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamSecretsStream>, Status> {
        Ok(Response::new(self.stream(request.into_inner())?.all()))
    }

    async fn fetch_secrets(
        &self,
        request: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        let request = request.into_inner();
        fits(&request.type_url)?;
        if request.resource_names.len() > self.shared.names_per_stream_max {
            return Err(refused(Refused::TooMany));
        }
        let mut response =
            DiscoveryResponse { type_url: TYPE_URL.to_owned(), ..DiscoveryResponse::default() };
        for name in &request.resource_names {
            let kind = self.shared.leaf_issuer.kind_of(&self.consumer);
            match self.shared.leaf_issuer.leaf(&self.consumer, name, kind, MintingProtocol::Sds).await {
                Ok(leaf) => {
                    response.version_info = version_of(&leaf);
                    response.resources.extend(resource_of(name, &leaf));
                }
                Err(NoLeaf::NotAllowed | NoLeaf::NotPermitted) => {}
                Err(error) => return Err(Status::unavailable(error.to_string())),
            }
        }
        Ok(Response::new(response))
    }
}
