//! What a server leaves in the data folder for the commands on the same machine.

use intercept::revocation::RevocationLists;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use crate::api::local;
use crate::exit::{Exit, Outcome, Problem};

/// The server's address and its root, readable by their owner only.
pub(super) fn write(url: &str, root_pem: &str) -> Outcome<()> {
    let folder = folder()?;
    put(&folder.join(local::URL), url)?;
    put(&folder.join(local::ROOT), root_pem)
}

/// The credential store's address, readable by its owner only; empty where none is served.
pub(super) fn write_credential_url(url: &str) -> Outcome<()> {
    put(&folder()?.join(local::CREDENTIAL_URL), url)
}

/// The first token, readable by its owner only.
pub(super) fn write_token(token: &SecretString) -> Outcome<()> {
    put(&folder()?.join(local::TOKEN), token.expose_secret())
}

/// The data folder, made for its owner only when it is missing.
pub(crate) fn folder() -> Outcome<PathBuf> {
    let folder = crate::data::folder()?;
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(&folder).map_err(|error| refused(&folder, &error))?;
    Ok(folder)
}

/// In one step, so that a reader never sees half of it.
pub(crate) fn put(path: &Path, text: &str) -> Outcome<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{}", text.trim_end())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        // The name too: the first token counts once this is done.
        path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
    };
    write().map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
        .hint("set BULLA_DATA to a folder you may write to")
}

/// The certificates (DER) of a PEM file that the configuration names by `key`.
pub(crate) fn certificates(key: &str, path: &Path) -> Outcome<Vec<Vec<u8>>> {
    let text = std::fs::read(path).map_err(|error| unreadable(key, path, &error))?;
    let all: Vec<Vec<u8>> = x509::pem::certificates(&text).map(|(_, der)| der).collect();
    if all.is_empty() {
        return Err(Problem::usage(format_args!("{} holds no certificate", path.display()))
            .hint(format!("name a PEM file in {key}")));
    }
    Ok(all)
}

/// The CRLs (DER) of a file, PEM or DER, that the configuration names by `key`.
pub(crate) fn crls(key: &str, path: &Path) -> Outcome<Vec<Vec<u8>>> {
    crls_of(key, path, std::fs::read(path).map_err(|error| unreadable(key, path, &error))?)
}

fn crls_of(key: &str, path: &Path, octets: Vec<u8>) -> Outcome<Vec<Vec<u8>>> {
    let pem: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&octets).collect();
    let none = || {
        Problem::usage(format_args!("{} holds no CRL", path.display()))
            .hint(format!("name a file of CRLs, PEM or DER, in {key}"))
    };
    let pem = pem.map_err(|_| none())?;
    let all: Vec<Vec<u8>> = match pem.is_empty() {
        true => vec![octets],
        false => pem.into_iter().map(|crl| crl.as_ref().to_vec()).collect(),
    };
    let is_one = |der: &Vec<u8>| x509::crl::Crl::parse(der).is_ok();
    if all.iter().all(is_one) { Ok(all) } else { Err(none()) }
}

/// The CRLs of files that the configuration names by `key`, read each time they are asked for; none where none is named. They are
/// read once here, so that who names them hears what is wrong.
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
        let lists = paths.iter().zip(files).map(|(path, octets)| crls_of(key, path, octets.clone()));
        let lists = lists.collect::<Outcome<Vec<_>>>().map_err(|problem| problem.message)?;
        Ok(lists.into_iter().flatten().collect())
    };
    Ok(Some(RevocationLists::new(files, ders)))
}

/// The secret in a file that the configuration names by `key`, without the line's end.
pub(crate) fn secret(key: &str, path: &Path) -> Outcome<SecretString> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(key, path, &error))?;
    let text = SecretString::from(text);
    Ok(SecretString::from(text.expose_secret().trim_end_matches(['\r', '\n'])))
}

fn unreadable(key: &str, path: &Path, error: &std::io::Error) -> Problem {
    Problem::usage(format_args!("cannot read {}: {error}", path.display())).hint(format!("check {key}"))
}
