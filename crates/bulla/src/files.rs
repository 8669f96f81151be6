//! Files that the configuration names: certificates, CRLs, keys, secrets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli::exit::{Outcome, Problem, chain};
use keys::PrivateKey;
use proxy::revocation::RevocationLists;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret, SecretString};
use server::listen::server_certificate;

/// Returns the certificates (DER) of a PEM file that the configuration names by `key`.
pub(crate) fn certificates(key: &str, path: &Path) -> Outcome<Vec<Vec<u8>>> {
    let text = std::fs::read(path).map_err(|error| unreadable(key, path, &error))?;
    let all: Vec<Vec<u8>> = x509::pem::certificates(&text).map(|(_, der)| der).collect();
    if all.is_empty() {
        return Err(Problem::usage(format_args!("{} contains no certificate", path.display()))
            .hint(format!("name a PEM file in {key}")));
    }
    Ok(all)
}

/// Returns the CRLs of a file, in DER. The configuration names the file by `key`; it may contain PEM or DER.
pub(crate) fn crls(key: &str, path: &Path) -> Outcome<Vec<Vec<u8>>> {
    crls_of(key, path, std::fs::read(path).map_err(|error| unreadable(key, path, &error))?)
}

fn crls_of(key: &str, path: &Path, bytes: Vec<u8>) -> Outcome<Vec<Vec<u8>>> {
    let pem: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let none = || {
        Problem::usage(format_args!("{} contains no CRL", path.display()))
            .hint(format!("name a file of CRLs, PEM or DER, in {key}"))
    };
    let pem = pem.map_err(|_| none())?;
    let all: Vec<Vec<u8>> = match pem.is_empty() {
        true => vec![bytes],
        false => pem.into_iter().map(|crl| crl.as_ref().to_vec()).collect(),
    };
    let is_one = |der: &Vec<u8>| x509::crl::Crl::parse(der).is_ok();
    if all.iter().all(is_one) { Ok(all) } else { Err(none()) }
}

/// Returns the CRLs of files that the configuration names by `key`; `None` without files. The files are read again at each use. They are
/// also read once here, so that a broken file is an error at startup.
pub(crate) fn revocation_lists(key: &'static str, paths: &[PathBuf]) -> Outcome<Option<RevocationLists>> {
    if paths.is_empty() {
        return Ok(None);
    }
    paths.iter().try_for_each(|path| crls(key, path).map(drop))?;
    let (paths, read) = (paths.to_vec(), paths.to_vec());
    let files = move || {
        let file = |path: &PathBuf| std::fs::read(path).map_err(|error| unreadable(key, path, &error));
        read.iter().map(file).collect::<Outcome<_>>().map_err(|problem| problem.message)
    };
    let ders = move |files: &[Vec<u8>]| {
        let lists = paths.iter().zip(files).map(|(path, bytes)| crls_of(key, path, bytes.clone()));
        let lists = lists.collect::<Outcome<Vec<_>>>().map_err(|problem| problem.message)?;
        Ok(lists.into_iter().flatten().collect())
    };
    Ok(Some(RevocationLists::new(files, ders)))
}

/// Returns the secret in a file that the configuration names by `key`, without the final line break.
pub(crate) fn secret(key: &str, path: &Path) -> Outcome<SecretString> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(key, path, &error))?;
    let text = SecretString::from(text);
    Ok(SecretString::from(text.expose_secret().trim_end_matches(['\r', '\n'])))
}

fn unreadable(key: &str, path: &Path, error: &std::io::Error) -> Problem {
    Problem::usage(format_args!("cannot read {}: {error}", path.display())).hint(format!("check {key}"))
}

/// Returns the chain and the key of the files that `PREFIXcertificate_file` and `PREFIXkey_file` name.
pub(crate) fn certified_key(prefix: &str, certificate: &Path, key: &Path) -> Outcome<Arc<CertifiedKey>> {
    let wrong = |why: String| {
        Problem::usage(format_args!("the certificate of {prefix}certificate_file: {why}"))
            .hint(format!("check {prefix}certificate_file and {prefix}key_file"))
    };
    let certificates = certificates(&format!("{prefix}certificate_file"), certificate)?;
    let key =
        PrivateKey::from_file(key).map_err(|error| wrong(format!("{}: {}", key.display(), chain(&error))))?;
    server_certificate(&certificates, &key).map_err(|error| wrong(chain(&error)))
}
