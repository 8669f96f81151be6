//! CRLs of clients' CAs that a key service or a proxy fetches from the control plane or from another URL of the CA.
//!
//! An entry of `client_crl_files` that begins with `https://` is fetched every minute and stored in the data folder. From there the
//! CRL is read like any other file. The last CRL stays in use while its server is unavailable, also after a restart and past its
//! `nextUpdate`. Each failed fetch is logged. Without any CRL the process does not start, because it would accept revoked
//! certificates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::configuration::ClientSettings;
use cli::exit::{Exit, Outcome, Problem, chain};
use outbound::Deadline;
use outbound::http::{Client, Options};
use outbound::resolve::Resolver;
use tokio_util::sync::CancellationToken;
use x509::crl::Crl;
use x509::{Fingerprint, UnixTime};

use crate::{data_folder, files};

/// Interval between two fetches. A revoked certificate is refused after this interval plus the interval of file checks, at the
/// latest.
const FETCH_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A CRL to fetch: its URL, and the file that stores it.
struct Source {
    url: String,
    path: PathBuf,
}

/// The CRLs that this process fetches, all from one configuration key.
pub(crate) struct FetchedCrls {
    key: &'static str,
    sources: Vec<Source>,
    client: Client,
}

impl FetchedCrls {
    /// Fetches the CRLs that `files` names by URL, and replaces each URL by the path of the stored CRL. Servers are verified with
    /// `ca_files`, the CAs of the clients, and with `client.ca_file`, the CA of the control plane. Returns `None` if `files`
    /// contains no URL.
    pub(crate) async fn open(
        key: &'static str,
        files: &mut [PathBuf],
        ca_files: &[PathBuf],
        control_plane: &ClientSettings,
    ) -> Outcome<Option<Self>> {
        let is_url = |path: &&mut PathBuf| path.to_str().is_some_and(|text| text.starts_with("https://"));
        let urls: Vec<&mut PathBuf> = files.iter_mut().filter(is_url).collect();
        if urls.is_empty() {
            return Ok(None);
        }
        let folder = data_folder::folder()?;
        let mut roots = Vec::new();
        let control_plane = Some(&control_plane.ca_file).filter(|path| !path.as_os_str().is_empty());
        for path in ca_files.iter().chain(control_plane) {
            roots.extend(files::certificates(key, path)?);
        }
        let failed = |error: &dyn std::error::Error| {
            Problem::new(Exit::Machine, format_args!("{key}: {}", chain(error)))
        };
        let resolver = Resolver::system().map_err(|error| failed(&error))?;
        let options = Options { roots: Some(roots), ..Options::default() };
        let client = Client::new(&resolver, &options).map_err(|error| failed(&error))?;
        let mut sources = Vec::new();
        for entry in urls {
            let url = entry.display().to_string();
            let path = folder.join(format!("{}.crl", Fingerprint::of(url.as_bytes())));
            entry.clone_from(&path);
            sources.push(Source { url, path });
        }
        let fetched = Self { key, sources, client };
        for source in &fetched.sources {
            if let Err(reason) = fetched.fetch(source).await {
                if !source.path.exists() {
                    return Err(Problem::new(Exit::Machine, format_args!("{key}: {}: {reason}", source.url))
                        .hint("without this CRL, revocation cannot be checked; it must be fetched once"));
                }
                tracing::error!(
                    url = source.url,
                    reason,
                    "the last fetched CRL of client CAs remains in use"
                );
            }
        }
        Ok(Some(fetched))
    }

    /// Fetches the CRLs every minute until `stop`.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("fetched-crls");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(FETCH_INTERVAL) => {}
            }
            for source in &self.sources {
                if let Err(reason) = self.fetch(source).await {
                    tracing::error!(
                        key = self.key,
                        url = source.url,
                        reason,
                        "the last fetched CRL of client CAs remains in use"
                    );
                }
            }
        }
    }

    async fn fetch(&self, source: &Source) -> Result<(), String> {
        let reply = self.client.get(&source.url, &[], Crl::DER_MAX, Deadline::within(FETCH_TIMEOUT)).await;
        let reply = reply.map_err(|error| chain(&error))?;
        if reply.status.as_u16() != 200 {
            return Err(format!("the server answered {}", reply.status));
        }
        keep_newer(&source.path, &reply.body)
    }
}

/// Writes `der` to the file unless the file contains a newer list. An attacker on the network could replay an older list.
fn keep_newer(path: &Path, der: &[u8]) -> Result<(), String> {
    let issuer_and_time =
        |der: &[u8]| Crl::parse(der).map(|list| (list.issuer.der.clone(), list.this_update));
    let (issuer, new): (_, UnixTime) = issuer_and_time(der).map_err(|error| error.to_string())?;
    if let Ok(stored) = std::fs::read(path) {
        if stored == der {
            return Ok(());
        }
        match issuer_and_time(&stored) {
            Ok((before, _)) if before != issuer => return Err("the CRL is of another CA".to_owned()),
            Ok((_, before)) if before > new => {
                return Err(format!("the CRL of {new} is older than the previous one, of {before}"));
            }
            _ => {}
        }
    }
    data_folder::put_bytes(path, der).map_err(|problem| problem.message)
}

#[cfg(test)]
mod tests {
    use keys::{KeyType, PrivateKey, Signer};
    use x509::DistinguishedName;
    use x509::build;
    use x509::crl::{CrlSpec, Scope, tbs_crl};

    use super::*;

    fn crl(issuer: &str, at: i64) -> Vec<u8> {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let issuer = DistinguishedName::from_text(issuer).unwrap();
        let spec = CrlSpec {
            signature: key.algorithm(),
            issuer: &issuer.der,
            this_update: UnixTime(at),
            next_update: UnixTime(at + 1),
            number: 1,
            authority_key_id: &[1],
            base: None,
            distribution_point: None,
            scope: Scope::All,
            freshest: None,
        };
        let tbs = tbs_crl(&spec, &[]);
        build::signed(&tbs, &spec.signature, &key.sign_now(&tbs).unwrap())
    }

    #[test]
    fn fetched_crl_is_replaced_only_by_a_newer_crl_of_the_same_ca() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.crl");
        let (first, second) = (crl("CN=A", 1_000), crl("CN=A", 2_000));
        assert!(keep_newer(&path, b"no list").is_err() && !path.exists());
        for (list, stored, why) in [
            (&first, &first, ""),
            (&second, &second, ""),
            (&first, &second, "older"),
            (&crl("CN=B", 3_000), &second, "another CA"),
            (&b"<html>".to_vec(), &second, "CRL"),
        ] {
            let outcome = keep_newer(&path, list);
            assert_eq!(outcome.is_ok(), why.is_empty(), "{why}: {outcome:?}");
            assert_eq!(&std::fs::read(&path).unwrap(), stored, "{why}");
        }
    }
}
