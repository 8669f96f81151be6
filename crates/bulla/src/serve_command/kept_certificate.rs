//! The server's own certificate in the data folder, for a start while the database is not writable. The file is sealed under the
//! master key, so that a copy of the folder alone does not reveal the private key.

use std::path::PathBuf;
use std::sync::Arc;

use cli::exit::Outcome;
use keys::PrivateKey;
use keys::keyring::{Context, Keyring};
use rustls::sign::CertifiedKey;
use server::listen::server_certificate;
use x509::{Certificate, UnixTime};

use crate::data_folder::{folder, put_bytes};

const FILE: &str = "server-certificate.sealed";

/// The context that the file is sealed with.
const CONTEXT: Context<'static> =
    Context { table: "data-folder", row: b"server-certificate", column: "chain-and-key" };

fn file() -> Outcome<PathBuf> {
    Ok(folder()?.join(FILE))
}

/// Stores a chain (DER, leaf first) with its key.
pub(super) fn keep(ring: &Keyring, chain: &[Vec<u8>], key: &PrivateKey) -> Outcome<()> {
    let mut text = key.to_pkcs8_pem();
    for der in chain {
        text.push_str(&x509::pem::encode("CERTIFICATE", der));
    }
    put_bytes(&file()?, &ring.seal(&CONTEXT, text.as_bytes()))
}

/// Returns the chain and key that were stored last; `None` if there is no file, it cannot be opened, or the certificate is not valid now.
pub(super) fn stored_certificate(ring: &Keyring, now: UnixTime) -> Option<Arc<CertifiedKey>> {
    let sealed = std::fs::read(file().ok()?).ok()?;
    let text = ring.open_sealed(&CONTEXT, &sealed).ok()?;
    let chain: Vec<Vec<u8>> = x509::pem::certificates(&text).map(|(_, der)| der).collect();
    let leaf = Certificate::parse(chain.first()?).ok()?;
    if now >= leaf.not_after {
        return None;
    }
    let key = PrivateKey::from_pem(std::str::from_utf8(&text).ok()?).ok()?;
    server_certificate(&chain, &key).ok()
}
