//! Checks that a target has all fields that its kind needs, within bounds.

use std::collections::HashSet;

use super::target::{
    ALIAS, FileSpec, HookCommand, InvalidTarget, KeystoreFormat, KeystoreTarget, PemTarget, Target,
    check_command, check_file, check_seconds, check_verify,
};

/// Minimum length of a password. keytool rejects shorter ones.
const PASSWORD_MIN: usize = 6;
/// Maximum number of characters of a password or an alias.
const PASSWORD_MAX: usize = 256;

impl Target {
    /// Checks that all required fields are present and within bounds. Changes nothing.
    ///
    /// # Errors
    /// [`InvalidTarget`] says what to change.
    pub fn check(&self) -> Result<(), InvalidTarget> {
        check(self)
    }
}

fn check(target: &Target) -> Result<(), InvalidTarget> {
    if let Some(verify) = target.verify() {
        check_verify(verify)?;
    }
    match target {
        Target::Pkcs12(store) | Target::Jks(store) => check_keystore(target, store),
        Target::Exec(exec) => {
            check_command("command", &exec.command)?;
            check_seconds(exec.hook_seconds)
        }
        Target::Nginx(pem) | Target::Apache(pem) | Target::Haproxy(pem) | Target::Caddy(pem) => {
            check_pem(target, pem)
        }
        Target::Traefik(pem) | Target::Envoy(pem) | Target::Postfix(pem) | Target::Dovecot(pem) => {
            check_pem(target, pem)
        }
        Target::Files(pem) => check_pem(target, pem),
    }
}

fn check_hooks(
    validate: Option<&HookCommand>,
    reload: Option<&HookCommand>,
    seconds: Option<u32>,
) -> Result<(), InvalidTarget> {
    for (what, hook) in [("validate", validate), ("reload", reload)] {
        if let Some(command) = hook.filter(|command| !command.is_none()) {
            check_command(what, command)?;
        }
    }
    check_seconds(seconds)
}

fn check_keystore(target: &Target, store: &KeystoreTarget) -> Result<(), InvalidTarget> {
    check_file("file", &store.file)?;
    let letters = store.password.expose().chars().count();
    if !(PASSWORD_MIN..=PASSWORD_MAX).contains(&letters) {
        return Err(InvalidTarget(format!("password: {PASSWORD_MIN} to {PASSWORD_MAX} characters")));
    }
    let alias = store.alias.as_deref().unwrap_or(ALIAS);
    if alias.is_empty() || alias.len() > PASSWORD_MAX || alias.chars().any(char::is_control) {
        return Err(InvalidTarget(format!("alias: 1 to {PASSWORD_MAX} characters")));
    }
    if store.format == KeystoreFormat::Jks && matches!(target, Target::Pkcs12(_)) {
        return Err(InvalidTarget("format: a pkcs12 target is always PKCS#12; use type \"jks\"".to_owned()));
    }
    check_hooks(store.validate.as_ref(), store.reload.as_ref(), store.hook_seconds)
}

fn named(pem: &PemTarget) -> [(&'static str, Option<&FileSpec>); 6] {
    [
        ("cert", pem.cert.as_ref()),
        ("chain", pem.chain.as_ref()),
        ("fullchain", pem.fullchain.as_ref()),
        ("key", pem.key.as_ref()),
        ("combined", pem.combined.as_ref()),
        ("config", pem.config.as_ref()),
    ]
}

fn check_pem(target: &Target, pem: &PemTarget) -> Result<(), InvalidTarget> {
    let mut paths = HashSet::new();
    for (what, file) in named(pem) {
        let Some(file) = file else { continue };
        check_file(what, file)?;
        if !paths.insert(&file.path) {
            return Err(InvalidTarget(format!("{what}: {:?} is given twice", file.path)));
        }
    }
    let pair = pem.fullchain.is_some() && pem.key.is_some();
    let three = pem.cert.is_some() && pem.key.is_some();
    let (enough, needed) = match target {
        Target::Traefik(_) => (pair && pem.config.is_some(), "fullchain, key and config"),
        Target::Envoy(_) => {
            let both = pem.fullchain.is_some() == pem.key.is_some();
            (pem.config.is_some() && both, "config, and either both or neither of fullchain and key")
        }
        Target::Apache(_) => {
            (pair || three || pem.combined.is_some(), "fullchain and key, or cert, chain and key")
        }
        Target::Files(_) => (!paths.is_empty(), "at least one file"),
        _ => (pair || pem.combined.is_some(), "fullchain and key, or combined"),
    };
    if !enough {
        return Err(InvalidTarget(format!("{} needs {needed}", target.kind())));
    }
    if pem.config.is_some() && !matches!(target, Target::Traefik(_) | Target::Envoy(_)) {
        return Err(InvalidTarget(format!("config: a target of type {} has no such file", target.kind())));
    }
    let name = pem.secret_name.as_deref().unwrap_or("server_cert");
    if name.is_empty() || name.len() > PASSWORD_MAX || !name.chars().all(is_plain) {
        return Err(InvalidTarget("secret_name: letters, digits, '-', '_', '.', '/'".to_owned()));
    }
    check_hooks(pem.validate.as_ref(), pem.reload.as_ref(), pem.hook_seconds)
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/')
}
