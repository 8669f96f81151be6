//! The components that a server process can run, such as the CA, the agents and the credential store.

use std::sync::Arc;

use agent::Agents;
use alerts::Alerts;
use api::limits::LimitView;
use audit::AuditLog;
use authority::Authority;
use authority::acme::Acme;
use authority::est::Est;
use authority::keystore::KeyStore;
use authority::publish::Publications;
use authority::scep::Scep;
use ct::Monitor;
use inventory::history::History;
use inventory::ownership::Ownership;
use inventory::watch::Watches;
use issuers::Issuers;
use lifecycle::Lifecycle;
use sites::Sites;
use sites::policies::KeyPolicies;

use crate::access::oidc::Oidc;
use crate::credhub::CredHub;
use crate::key_services::KeyServices;
use crate::proxy_requests::ProxyRequests;

/// The components of a server. The routes of a component that is `None` respond 503.
///
/// A process that runs all components sets every field explicitly, so that the compiler reports a forgotten component.
#[derive(Clone, Default)]
pub struct Components {
    /// The embedded certification authority and its protocols.
    pub issuance: Option<Issuance>,
    /// Lifecycle of managed certificates: requests, renewals, deployments.
    pub certificates: Option<Lifecycle>,
    /// The issuers that sign managed certificates.
    pub issuers: Option<Issuers>,
    /// The agents that deploy certificates on hosts.
    pub agents: Option<Agents>,
    /// The sites, nodes and key policies of the key service.
    pub key_nodes: Option<KeyNodes>,
    /// The key services whose load and traces this server reads.
    pub key_services: Option<Arc<dyn KeyServices>>,
    /// The proxy that runs in this process.
    pub proxy: Option<Arc<dyn ProxyRequests>>,
    /// The stored keys, and the master keys that encrypt them.
    pub keystore: Option<KeyStore>,
    /// Alerts and their channels.
    pub alerts: Option<Alerts>,
    /// The monitor that searches Certificate Transparency for certificates of watched domains.
    pub transparency: Option<Monitor>,
    /// Watches: scans that run on a schedule.
    pub watches: Option<Watches>,
    /// The rules that assign endpoints to teams.
    pub ownership: Option<Ownership>,
    /// Performance of the scanner over time.
    pub history: Option<History>,
    /// The credential store, with its CredHub and Vault APIs.
    pub credentials: Option<CredHub>,
    /// Signed heads and segments of the audit log.
    pub audit: Option<AuditLog>,
    /// The limits and the retention in effect.
    pub limits: Option<Arc<[LimitView]>>,
    /// Login by OpenID Connect.
    pub oidc: Option<Oidc>,
}

/// The embedded certification authority, and the protocols that issue and publish its certificates.
#[derive(Clone)]
pub struct Issuance {
    /// Issues and revokes certificates.
    pub authority: Authority,
    /// CRLs, OCSP and CA certificates.
    pub publications: Publications,
    /// The ACME server (RFC 8555).
    pub acme: Acme,
    /// The EST server (RFC 7030).
    pub est: Est,
    /// The SCEP server (RFC 8894).
    pub scep: Scep,
}

/// The sites, nodes and key policies of the key service.
#[derive(Clone)]
pub struct KeyNodes {
    /// Sites and the nodes at them.
    pub places: Sites,
    /// The policies that define which nodes can decrypt which keys.
    pub policies: KeyPolicies,
}
