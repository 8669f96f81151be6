//! Bringing a certificate to where it is used, on the host it is used on.
//!
//! A [`Target`] says where: files, commands, and the endpoint that must serve it afterwards. [`Deployer`] does it, all or
//! nothing: see [`engine`](Deployer).

mod engine;
mod fault;
mod file;
mod hook;
mod journal;
mod keystore;
mod material;
mod plan;
mod target;
mod verify;

pub use engine::{DeployError, Deployer, Outcome, Recovery, Report};
#[doc(hidden)]
pub use fault::{Fault, Halted};
pub use file::FileError;
pub use hook::HookError;
pub use journal::{BACKUPS_KEPT, StateError};
pub(crate) use journal::{STAGED, failed, make_folder, read_json, remove, write_json, write_private};
pub use keystore::KeystoreError;
pub use material::{Material, MaterialError};
pub use target::{
    ExecTarget, FileMode, FileSpec, HOOK_SECONDS_MAX, InvalidTarget, KeystoreFormat, KeystoreTarget,
    PemTarget, Target, VERIFY_SECONDS_MAX, Verify,
};
pub use verify::{VerifyError, served};

/// A name as people write it.
pub(crate) fn name_text(name: &x509::GeneralName) -> String {
    use x509::GeneralName as G;
    match name {
        G::Ip(address) => address.to_string(),
        G::Dns(text)
        | G::BadIp(text)
        | G::Email(text)
        | G::Uri(text)
        | G::Directory(text)
        | G::Other(text) => text.clone(),
    }
}
