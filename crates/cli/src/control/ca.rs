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

use super::{Run, activity, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::{Outcome, Problem};
use crate::units;

/// Authorities of a server.
#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// List them
    List(Listing),
    /// Show what each authority publishes: age, end and entries of its CRLs, failures, its OCSP responder
    Publications(Output),
    /// Show one, with its certificate and chain
    Show {
        /// Its name or id
        ca: String,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Make one: a root, or an intermediate with --parent
    Create(NewAuthority),
    /// Take over one that exists: its certificate and its key
    Import {
        /// Its name here
        name: String,
        /// PEM: its certificate, then those above it
        #[arg(long, value_name = "FILE")]
        certificates: PathBuf,
        /// PEM: its private key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Make a key and a request for an intermediate below a root elsewhere
    Request(NewAuthority),
    /// Install the certificate that a root elsewhere made for such a request
    Install {
        /// The id of the authority that waits
        id: String,
        /// PEM: its certificate, then those above it
        #[arg(long, value_name = "FILE")]
        certificates: PathBuf,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Let one sign another's certificate, so that clients of either trust it
    CrossSign {
        /// Whose certificate: name or id
        ca: String,
        /// Who signs: name or id
        #[arg(long, value_name = "CA")]
        by: String,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Give one another certificate under the same key; what it issued holds under both
    Renew {
        /// Its name or id
        ca: String,
        /// How long the new one is valid, from now: 3650d; as long as the old one was made for unless given
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        lifetime: Option<std::time::Duration>,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Make a CA the default: profiles that name no CA issue from it
    Default {
        /// Its name or id
        ca: String,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Retire one in two steps: first it issues no more, then it signs nothing any more
    Retire {
        /// Its name or id
        ca: String,
        /// Retire it though profiles name it, no other CA issues, or valid certificates need its CRL
        #[arg(long)]
        force: bool,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Revoke a certificate that one issued, managed or not
    Revoke {
        /// A PEM file with the certificate, or its SHA-256 fingerprint, or its id
        certificate: String,
        /// keyCompromise, superseded, cessationOfOperation, certificateHold, removeFromCRL, …
        #[arg(long, value_name = "REASON", default_value = "unspecified")]
        reason: String,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
}

/// An authority to make.
#[derive(Args, Debug)]
pub struct NewAuthority {
    /// Its name here, unique
    name: String,
    /// Its distinguished name: CN=Example Web CA, O=Example
    #[arg(long, value_name = "NAME")]
    subject: String,
    /// The authority above it; none for a root
    #[arg(long, value_name = "CA")]
    parent: Option<String>,
    /// The kind of its key: p256, p384, rsa4096, ed25519, ml-dsa-65, …
    #[arg(long, value_name = "KIND")]
    key_type: Option<String>,
    /// Where its key is made and kept: `pkcs11` for the security module of the configuration [default: the database, sealed]
    #[arg(long, value_name = "PROVIDER")]
    key_provider: Option<String>,
    /// How long it is valid: 3650d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    lifetime: Option<std::time::Duration>,
    /// Authorities that may stand below it
    #[arg(long, value_name = "NUMBER")]
    path_length: Option<u32>,
    /// Names certificates below it may have: dns:example.com, ip:10.0.0.0/8; may be repeated
    #[arg(long, value_name = "NAME")]
    permit: Vec<String>,
    /// Names they may not have; may be repeated
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
        let place = |ca: &str| format!("{PATH}/{}", input::segment(ca));
        match self {
            Self::List(listing) => listing.print(client, PATH, &(), COLUMNS).await,
            Self::Publications(output) => activity::publications(client, output).await,
            Self::Show { ca, show } => show_one(&client.get(&place(ca), &()).await?, show),
            Self::Create(new) => post(client, PATH, &new.request(false), &new.show).await,
            Self::Request(new) => post(client, PATH, &new.request(true), &new.show).await,
            Self::Import { name, certificates, key, show } => {
                let (certificates, key) = (read(certificates)?, read(key)?);
                let authority = ImportedAuthority { name: name.clone(), certificates, key };
                post(client, &format!("{PATH}/import"), &authority, show).await
            }
            Self::Install { id, certificates, show } => {
                let installed = InstalledCertificate { certificates: read(certificates)? };
                let path = format!("{}/certificate", place(id));
                show_one(&client.submit(Method::PUT, &path, &installed).await?, show)
            }
            Self::CrossSign { ca, by, show } => {
                let signature = CrossSignature { by: by.clone() };
                post(client, &format!("{}/cross-signatures", place(ca)), &signature, show).await
            }
            Self::Renew { ca, lifetime, show } => {
                let renewing = Renewing { lifetime_seconds: lifetime.map(units::whole_seconds) };
                post(client, &format!("{}/renew", place(ca)), &renewing, show).await
            }
            Self::Default { ca, show } => post(client, &format!("{}/default", place(ca)), &(), show).await,
            Self::Retire { ca, force, show } => {
                post(client, &format!("{}/retire", place(ca)), &Retiring { force: *force }, show).await
            }
            Self::Revoke { certificate, reason, show } => {
                let revocation = NewRevocation {
                    certificate: Some(named(certificate)?),
                    reason: reason.clone(),
                    ..NewRevocation::default()
                };
                post(client, "/api/v1/revocations", &revocation, show).await
            }
        }
    }
}

async fn post(client: &Client, path: &str, request: &impl Serialize, show: &Output) -> Outcome<()> {
    show_one(&client.submit(Method::POST, path, request).await?, show)
}

/// The fingerprint of the first certificate in a file; what names no file is one, or an id, itself.
fn named(certificate: &str) -> Outcome<String> {
    let path = Path::new(certificate);
    if !path.exists() {
        return Ok(certificate.to_owned());
    }
    let text = read(path)?;
    let (_, der) = x509::pem::certificates(text.as_bytes()).next().ok_or_else(|| {
        Problem::usage(format_args!("there is no certificate in {certificate}")).hint("give a PEM file")
    })?;
    Ok(x509::Fingerprint::of(&der).to_string())
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display())).hint("give a PEM file")
    })
}
