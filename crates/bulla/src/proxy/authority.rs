//! The CA of the proxy's leaves: from the operator's files, or created in the data folder.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli::exit::{Exit, Outcome, Problem, chain};
use keyless::client::{Client, ClientMetrics, ClientOptions};
use keys::{KeyRef, KeyType, PrivateKey};
use proxy::mint::{Authority, BadAuthority, new_root};
use x509::{Certificate, UnixTime};

use crate::config::{ProxyAuthoritySettings, ProxySettings, Settings};
use crate::data_folder;
use crate::files;
use crate::master_keys;

/// File with the CA certificate of the proxy, in the data folder.
pub(crate) const CERTIFICATE: &str = "proxy-ca.pem";
const KEY: &str = "proxy-ca.key";
/// The lock file that serialises the creation of the CA's certificate and key files.
const LOCK: &str = "proxy-ca.lock";

/// The CA of the proxy, and the path of its certificate.
pub(crate) struct LoadedAuthority {
    pub(crate) authority: Authority,
    pub(crate) certificate: PathBuf,
    /// The key service client that signs with the CA's key, if a key service has the key.
    pub(crate) client: Option<Client>,
}

/// Loads the CA of the settings, or the CA in the data folder, which is created if it is missing.
pub(crate) async fn load(
    whole: &Settings,
    settings: &ProxySettings,
    metrics: ClientMetrics,
) -> Outcome<LoadedAuthority> {
    if settings.authority.is_key_external() && settings.ca_certificate_file.as_os_str().is_empty() {
        return Err(Problem::usage("the CA key is external, but no CA certificate is configured")
            .hint("give the CA certificate with its chain: --ca-certificate, or proxy.ca_certificate_file"));
    }
    let is_given = settings.authority.is_key_external() || !settings.ca_key_file.as_os_str().is_empty();
    let (certificate, key) = match is_given {
        true => (settings.ca_certificate_file.clone(), settings.ca_key_file.clone()),
        false => ensure_ca_in_data_folder()?,
    };
    let chain_der = files::certificates("proxy.ca_certificate_file", &certificate)?;
    let (signer, client) = match settings.authority.is_key_external() {
        true => with_external_key(whole, &settings.authority, &chain_der, metrics).await?,
        false => (load_key_file(&key)?, None),
    };
    let authority = Authority::new(&chain_der, signer, settings.crl_urls.clone());
    let authority = authority.map_err(|error: BadAuthority| {
        Problem::usage(format_args!("the proxy's CA in {}: {error}", certificate.display()))
            .hint("give the CA's own certificate first, and its key: --ca-certificate, --ca-key")
    })?;
    check_validity(&authority, &certificate)?;
    Ok(LoadedAuthority { authority, certificate, client })
}

fn load_key_file(key: &Path) -> Outcome<KeyRef> {
    let signer = PrivateKey::from_file(key).map_err(|error| {
        Problem::usage(format_args!("{}: {}", key.display(), chain(&error))).hint("check proxy.ca_key_file")
    })?;
    Ok(Arc::new(signer))
}

/// Creates a CA whose key is in the security module or in a key service.
async fn with_external_key(
    whole: &Settings,
    settings: &ProxyAuthoritySettings,
    chain_der: &[Vec<u8>],
    metrics: ClientMetrics,
) -> Outcome<(KeyRef, Option<Client>)> {
    let label = &settings.pkcs11_label;
    if !label.is_empty() {
        const KEY: &str = "proxy.authority.pkcs11_label";
        let found = master_keys::token_keys(whole, KEY, std::slice::from_ref(label)).await?;
        let missing =
            || Problem::usage(format_args!("the token has no key {label:?}")).hint(format!("correct {KEY}"));
        return Ok((found.into_iter().next().ok_or_else(missing)?, None));
    }
    let tls = settings.client_tls()?;
    let options = ClientOptions { servers: settings.servers()?, tls, ..ClientOptions::default() };
    let client = Client::start(&options, metrics).map_err(|error| {
        Problem::usage(chain(&error))
            .hint("see proxy.authority.keys, and its keys_certificate_file, keys_key_file and keys_ca_files")
    })?;
    let own = chain_der.first().and_then(|der| Certificate::parse(der).ok());
    let key = own.as_ref().and_then(|own| client.key(&own.public_key.spki));
    let key = key.ok_or_else(|| {
        Problem::usage("no key service has the key of proxy.ca_certificate_file")
            .hint("give the CA's own certificate first; RSA, ECDSA and Ed25519 keys are supported")
    })?;
    Ok((Arc::new(key), Some(client)))
}

fn check_validity(authority: &Authority, file: &Path) -> Outcome<()> {
    let (own, now) = (authority.certificate(), UnixTime(store::Clock::system().now_seconds()));
    if (own.not_before..=own.not_after).contains(&now) {
        return Ok(());
    }
    Err(Problem::usage(format_args!(
        "the certificate of the proxy's CA in {} has expired or is not yet valid",
        file.display()
    ))
    .hint("give a valid one, --ca-certificate and --ca-key; or check this machine's clock"))
}

fn ensure_ca_in_data_folder() -> Outcome<(PathBuf, PathBuf)> {
    let folder = data_folder::folder()?;
    // Allow one start at a time: two concurrent starts could each create a CA, and mix their files.
    let _lock = lock_file(&folder.join(LOCK))?;
    let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    let exists = |path: &Path| path.try_exists().unwrap_or(true);
    match (exists(&certificate), exists(&key)) {
        (true, true) => {}
        // A key without a certificate remains after an interrupted start, or if someone moved the certificate. Clients may trust
        // this CA, so the key stays, and the new certificate has the same name.
        (false, exists) => make(&certificate, &key, exists)?,
        (true, false) => {
            return Err(Problem::new(Exit::Machine, format_args!("{} does not exist", key.display())).hint(
                format!(
                    "restore the file, or delete {} to generate a new CA, which clients then have to trust",
                    certificate.display()
                ),
            ));
        }
    }
    Ok((certificate, key))
}

/// Locks the file. The lock is held until drop, or until the process ends.
fn lock_file(path: &Path) -> Outcome<File> {
    let file = File::options().create(true).append(true).mode(0o600).open(path);
    file.and_then(|file| file.lock().map(|()| file)).map_err(|error| {
        Problem::new(Exit::Machine, format_args!("{}: {error}", path.display()))
            .hint("check the permissions of the data folder, or set another one: BULLA_DATA")
    })
}

fn make(certificate: &Path, key: &Path, has_key: bool) -> Outcome<()> {
    let failed = |error: &dyn std::error::Error| {
        Problem::new(Exit::Machine, format_args!("the proxy has no CA: {error}"))
            .hint("give a CA: --ca-certificate and --ca-key")
    };
    let own = match has_key {
        true => PrivateKey::from_file(key).map_err(|error| failed(&error))?,
        false => PrivateKey::generate(KeyType::P256).map_err(|error| failed(&error))?,
    };
    let now = UnixTime(store::Clock::system().now_seconds());
    let root = new_root(&own, now).map_err(|error| failed(&error))?;
    if !has_key {
        data_folder::put(key, &own.to_pkcs8_pem())?;
    }
    data_folder::put(certificate, &x509::pem::encode("CERTIFICATE", &root))
}
