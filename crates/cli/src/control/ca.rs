//! Certification authorities of a server.

use std::path::{Path, PathBuf};

use api::authorities::{
    self, AuthorityView, CrossSignature, ImportedAuthority, InstalledCertificate, NewNameLimits, Renewing,
    Retiring,
};
use api::revocations::NewRevocation;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;

use super::{Run, activity, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, ShortListing, show_one};
use crate::exit::{Exit, Outcome, Problem, print};
use crate::units;

/// Commands for the certification authorities of a server.
#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// List CAs
    List(Listing),
    /// Show the publications of each CA: age, expiry and entries of its CRLs, failures, its OCSP responder
    Publications(ShortListing),
    /// Show a CA, with its certificate and chain
    Show {
        /// Name or id of the CA
        ca: String,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Export a CA's certificate and its issuers' certificates as PEM, without the root
    #[command(after_help = "\
Examples:
  bulla ca export issuing > chain.pem
  bulla ca export issuing --root > root.pem")]
    Export {
        /// Name or id of the CA
        ca: String,
        /// Export only the root of the CA's chain, for trust stores
        #[arg(long)]
        root: bool,
    },
    /// Create a CA: a root, or an intermediate with --parent
    Create(NewAuthority),
    /// Import an existing CA: its certificate and its key
    Import {
        /// Name of the CA on this server
        name: String,
        /// PEM file: the CA's certificate, then its issuers' certificates
        #[arg(long, value_name = "FILE")]
        certificates: PathBuf,
        /// PEM file: the CA's private key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Create a key and a certificate request for an intermediate below an external root
    Request(NewAuthority),
    /// Install the certificate that an external root issued for a request of `bulla ca request`
    Install {
        /// Id of the CA that waits for its certificate
        id: String,
        /// PEM file: the CA's certificate, then its issuers' certificates
        #[arg(long, value_name = "FILE")]
        certificates: PathBuf,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Cross-sign a CA's certificate with another CA, so that clients of either CA trust it
    CrossSign {
        /// CA whose certificate is signed: name or id
        ca: String,
        /// CA that signs: name or id
        #[arg(long, value_name = "CA")]
        by: String,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Renew a CA's certificate with the same key; issued certificates are valid under both
    Renew {
        /// Name or id of the CA
        ca: String,
        /// Validity of the new certificate from now: 3650d [default: as long as the old certificate's validity]
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        lifetime: Option<std::time::Duration>,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Make a CA the default for profiles that name no CA
    Default {
        /// Name or id of the CA
        ca: String,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Retire a CA in two steps: first it issues no more certificates, then it signs nothing more
    Retire {
        /// Name or id of the CA
        ca: String,
        /// Retire the CA even if profiles name it, no other CA issues, or valid certificates need its CRL
        #[arg(long)]
        force: bool,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Revoke a certificate that a CA has issued, managed or not
    Revoke {
        /// PEM file with the certificate, or its SHA-256 fingerprint or id
        certificate: String,
        /// Reason: keyCompromise, superseded, cessationOfOperation, certificateHold, removeFromCRL, …
        #[arg(long, value_name = "REASON", default_value = "unspecified")]
        reason: String,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
}

/// Arguments of `bulla ca create` and `bulla ca request`.
#[derive(Args, Debug)]
pub struct NewAuthority {
    /// Name of the CA on this server, unique
    name: String,
    /// Distinguished name of the CA: CN=Example Web CA, O=Example
    #[arg(long, value_name = "NAME")]
    subject: String,
    /// The parent CA; none for a root
    #[arg(long, value_name = "CA")]
    parent: Option<String>,
    /// Key type: p256, p384, rsa4096, ed25519, ml-dsa-65, …
    #[arg(long, value_name = "KIND")]
    key_type: Option<String>,
    /// Where the key is created and stored: `pkcs11` for the configured security module [default: the database, sealed]
    #[arg(long, value_name = "PROVIDER")]
    key_provider: Option<String>,
    /// Validity of the certificate, for example 3650d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    lifetime: Option<std::time::Duration>,
    /// Maximum number of CAs below this CA in a chain
    #[arg(long, value_name = "NUMBER")]
    path_length: Option<u32>,
    /// Name allowed in certificates below this CA: dns:example.com, ip:10.0.0.0/8; may be repeated
    #[arg(long, value_name = "NAME")]
    permit: Vec<String>,
    /// Name forbidden in certificates below this CA; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    #[command(flatten)]
    show: Output,
}

impl NewAuthority {
    fn request(&self, external: bool) -> authorities::NewAuthority {
        let limits = (!self.permit.is_empty() || !self.exclude.is_empty())
            .then(|| NewNameLimits { permitted: self.permit.clone(), excluded: self.exclude.clone() });
        authorities::NewAuthority {
            name: self.name.clone(),
            subject: self.subject.clone(),
            parent: self.parent.clone(),
            external,
            key_type: self.key_type.clone(),
            key_provider: self.key_provider.clone(),
            lifetime_seconds: self.lifetime.map(units::whole_seconds),
            path_length: self.path_length,
            name_limits: limits,
            ..authorities::NewAuthority::default()
        }
    }
}

const PATH: &str = "/api/v1/authorities";
const COLUMNS: Columns = columns!(
    AuthorityView:
    ("Name", name),
    ("State", state),
    ("Subject", subject),
    ("Key", key_type),
    ("Ends", not_after),
    ("Root", root),
    ("Default", default),
    ("Credential", credential),
    ("Id", id),
);

impl Run for AuthorityCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        let path_to = |ca: &str| format!("{PATH}/{}", input::segment(ca));
        match self {
            Self::List(listing) => listing.print(client, PATH, &(), COLUMNS).await,
            Self::Publications(output) => activity::publications(client, output).await,
            Self::Show { ca, show } => show_one(&client.get(&path_to(ca), &()).await?, show),
            Self::Export { ca, root } => print(pem(&client.get(&path_to(ca), &()).await?, *root)?.trim_end()),
            Self::Create(new) => post(client, PATH, &new.request(false), &new.show).await,
            Self::Request(new) => post(client, PATH, &new.request(true), &new.show).await,
            Self::Import { name, certificates, key, show } => {
                let (certificates, key) = (read(certificates)?, read(key)?);
                let authority = ImportedAuthority { name: name.clone(), certificates, key };
                post(client, &format!("{PATH}/import"), &authority, show).await
            }
            Self::Install { id, certificates, show } => {
                let installed = InstalledCertificate { certificates: read(certificates)? };
                let path = format!("{}/certificate", path_to(id));
                show_one(&client.submit(Method::PUT, &path, &installed).await?, show)
            }
            Self::CrossSign { ca, by, show } => {
                let signature = CrossSignature { by: by.clone() };
                post(client, &format!("{}/cross-signatures", path_to(ca)), &signature, show).await
            }
            Self::Renew { ca, lifetime, show } => {
                let renewing = Renewing { lifetime_seconds: lifetime.map(units::whole_seconds) };
                post(client, &format!("{}/renew", path_to(ca)), &renewing, show).await
            }
            Self::Default { ca, show } => post(client, &format!("{}/default", path_to(ca)), &(), show).await,
            Self::Retire { ca, force, show } => {
                post(client, &format!("{}/retire", path_to(ca)), &Retiring { force: *force }, show).await
            }
            Self::Revoke { certificate, reason, show } => {
                let revocation = NewRevocation {
                    certificate: Some(fingerprint_of(certificate)?),
                    reason: reason.clone(),
                    ..NewRevocation::default()
                };
                post(client, "/api/v1/revocations", &revocation, show).await
            }
        }
    }
}

/// Returns the root of a CA, or its certificate and its issuers' certificates. `ca` is an [`AuthorityView`].
fn pem(ca: &Value, root: bool) -> Outcome<&str> {
    let member = |name: &str| ca[name].as_str().filter(|text| !text.is_empty());
    // A root has no chain.
    let own = member("chain").or_else(|| member("certificate"));
    let name = member("name").unwrap_or_default();
    match (own, root) {
        (None, _) => Err(Problem::new(Exit::Refused, format_args!("the CA {name} has no certificate yet"))
            .hint("install it: bulla ca install")),
        (Some(own), false) => Ok(own),
        (Some(_), true) => member("anchor").ok_or_else(|| {
            Problem::new(Exit::Refused, format_args!("the server does not know the root of the CA {name}"))
                .hint("get the root from the operator of the external CA")
        }),
    }
}

async fn post(client: &Client, path: &str, request: &impl Serialize, show: &Output) -> Outcome<()> {
    show_one(&client.submit(Method::POST, path, request).await?, show)
}

/// Returns the fingerprint of the first certificate in a file. An argument that names no file is itself a fingerprint or an id.
fn fingerprint_of(certificate: &str) -> Outcome<String> {
    let path = Path::new(certificate);
    if !path.exists() {
        return Ok(certificate.to_owned());
    }
    let text = read(path)?;
    let (_, der) = x509::pem::certificates(text.as_bytes()).next().ok_or_else(|| {
        Problem::usage(format_args!("no certificate in {certificate}")).hint("give a PEM file")
    })?;
    Ok(x509::Fingerprint::of(&der).to_string())
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display())).hint("give a PEM file")
    })
}
