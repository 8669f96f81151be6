//! Computes files and commands from a target and a certificate. Pure: reads and writes nothing.

use std::path::Path;

use enrollment::Material;
use zeroize::Zeroizing;

use super::hook::{Hook, MaterialPaths};
use super::keystore::{self, ContentComparison, KeystoreError};
use super::target::{
    ALIAS, ExecTarget, FileSpec, HookCommand, KeystoreFormat, KeystoreTarget, PemTarget, Target, Verify,
};

/// Default timeout of a hook, in seconds.
const HOOK_SECONDS: u32 = 60;

/// Owner of the directory that a file is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DirectoryOwner {
    /// A path on the host. The policy must allow it.
    Host,
    /// A path in the agent's own directory, chosen by the agent.
    Agent,
}

/// A file that a target needs.
#[derive(Clone, Debug)]
pub(crate) struct NeededFile {
    pub(crate) spec: FileSpec,
    /// Whether the file contains a private key.
    pub(crate) private: bool,
    pub(crate) place: DirectoryOwner,
}

/// Everything a target needs on its host, independent of the certificate.
pub(crate) struct TargetRequirements {
    /// Files, in the order in which they are written.
    pub(crate) files: Vec<NeededFile>,
    pub(crate) validate: Option<Hook>,
    pub(crate) reload: Option<Hook>,
    pub(crate) verify: Option<Verify>,
}

pub(crate) struct PlannedFile {
    pub(crate) needed: NeededFile,
    pub(crate) content: Zeroizing<Vec<u8>>,
    pub(crate) same: Option<ContentComparison>,
}

/// All actions of a deployment, in order.
pub(crate) struct Plan {
    pub(crate) needs: TargetRequirements,
    /// The files, in the order of `TargetRequirements`.
    pub(crate) files: Vec<PlannedFile>,
}

/// The default commands of a kind of target: validate, reload.
type DefaultCommands = (&'static [&'static str], &'static [&'static str]);

fn target_commands(target: &Target) -> DefaultCommands {
    match target {
        Target::Nginx(_) => (&["nginx", "-t"], &["nginx", "-s", "reload"]),
        Target::Apache(_) => (&["apachectl", "configtest"], &["apachectl", "graceful"]),
        Target::Haproxy(_) => {
            (&["haproxy", "-c", "-f", "/etc/haproxy/haproxy.cfg"], &["systemctl", "reload", "haproxy"])
        }
        Target::Caddy(_) => (
            &["caddy", "validate", "--config", "/etc/caddy/Caddyfile"],
            // Without --force Caddy sees an unchanged configuration and keeps the old certificate.
            &["caddy", "reload", "--config", "/etc/caddy/Caddyfile", "--force"],
        ),
        Target::Postfix(_) => (&["postfix", "check"], &["postfix", "reload"]),
        Target::Dovecot(_) => (&["doveconf", "-n"], &["doveadm", "reload"]),
        // Traefik and Envoy watch their file; no reload is needed.
        Target::Traefik(_) | Target::Envoy(_) => (&[], &[]),
        Target::Files(_) | Target::Pkcs12(_) | Target::Jks(_) | Target::Exec(_) => (&[], &[]),
    }
}

impl TargetRequirements {
    /// Returns the files and commands that `target` needs. `own` is the agent's directory for this target, for the files of `exec`.
    pub(crate) fn of(target: &Target, own: &Path) -> Self {
        match target {
            Target::Exec(exec) => exec_needs(exec, own),
            Target::Pkcs12(store) | Target::Jks(store) => keystore_needs(store),
            Target::Nginx(pem) | Target::Apache(pem) | Target::Haproxy(pem) | Target::Caddy(pem) => {
                pem_needs(target, pem)
            }
            Target::Traefik(pem) | Target::Envoy(pem) | Target::Postfix(pem) | Target::Dovecot(pem) => {
                pem_needs(target, pem)
            }
            Target::Files(pem) => pem_needs(target, pem),
        }
    }
}

impl Plan {
    /// Plans the deployment to `target`. `own` is as in [`TargetRequirements::of`].
    pub(crate) fn of(target: &Target, material: &Material, own: &Path) -> Result<Self, KeystoreError> {
        let needs = TargetRequirements::of(target, own);
        let contents = match target {
            Target::Exec(_) => exec_contents(material),
            Target::Pkcs12(store) | Target::Jks(store) => vec![keystore_content(store, material)?],
            Target::Nginx(pem) | Target::Apache(pem) | Target::Haproxy(pem) | Target::Caddy(pem) => {
                pem_contents(target, pem, material)
            }
            Target::Traefik(pem) | Target::Envoy(pem) | Target::Postfix(pem) | Target::Dovecot(pem) => {
                pem_contents(target, pem, material)
            }
            Target::Files(pem) => pem_contents(target, pem, material),
        };
        let planned = |(needed, (content, same)): (&NeededFile, Content)| PlannedFile {
            needed: needed.clone(),
            content,
            same,
        };
        let files = needs.files.iter().zip(contents).map(planned).collect();
        Ok(Self { needs, files })
    }
}

/// The bytes of a file, and an optional check that accepts other bytes with the same content.
type Content = (Zeroizing<Vec<u8>>, Option<ContentComparison>);

/// Returns the files of a PEM target, and whether each contains a key. The key comes before the certificate. A file that the server
/// watches comes last, so that all other files exist when the server reads it.
fn pem_files(pem: &PemTarget) -> [(Option<&FileSpec>, bool); 6] {
    [
        (pem.key.as_ref(), true),
        (pem.cert.as_ref(), false),
        (pem.chain.as_ref(), false),
        (pem.fullchain.as_ref(), false),
        (pem.combined.as_ref(), true),
        (pem.config.as_ref(), pem.key.is_none()),
    ]
}

fn pem_needs(target: &Target, pem: &PemTarget) -> TargetRequirements {
    let (validate, reload) = target_commands(target);
    let seconds = pem.hook_seconds.unwrap_or(HOOK_SECONDS);
    let needed = |(spec, private): (Option<&FileSpec>, bool)| {
        Some(NeededFile { spec: spec?.clone(), private, place: DirectoryOwner::Host })
    };
    TargetRequirements {
        files: pem_files(pem).into_iter().filter_map(needed).collect(),
        validate: hook(pem.validate.as_ref(), validate, seconds),
        reload: hook(pem.reload.as_ref(), reload, seconds),
        verify: pem.verify.clone(),
    }
}

fn pem_contents(target: &Target, pem: &PemTarget, material: &Material) -> Vec<Content> {
    let key = material.key_pem();
    let combined = Zeroizing::new(format!("{}{}", material.fullchain_pem(), &*key));
    let all = [
        key.as_bytes().to_vec(),
        material.cert_pem().into_bytes(),
        material.chain_pem().into_bytes(),
        material.fullchain_pem().into_bytes(),
        combined.as_bytes().to_vec(),
        config(target, pem, material).as_bytes().to_vec(),
    ];
    let all = all.map(|content| (Zeroizing::new(content), None));
    let configured = pem_files(pem).map(|(spec, _)| spec.is_some());
    all.into_iter()
        .zip(configured)
        .filter_map(|(content, configured)| configured.then_some(content))
        .collect()
}

fn hook(given: Option<&HookCommand>, preset: &[&str], seconds: u32) -> Option<Hook> {
    let preset = || HookCommand::Argv(preset.iter().map(|&text| text.to_owned()).collect());
    let command = given.cloned().unwrap_or_else(preset);
    (!command.is_none()).then_some(Hook { command, seconds, told: None })
}

/// Generates the configuration file of Traefik or Envoy. It contains the fingerprint, so that the watcher sees a change with each
/// certificate.
fn config(target: &Target, pem: &PemTarget, material: &Material) -> Zeroizing<String> {
    let path = |spec: &Option<FileSpec>| {
        spec.as_ref().map(|spec| spec.path.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let (fullchain, key) = (path(&pem.fullchain), path(&pem.key));
    let head = format!("# Written by bulla. SHA-256 of the certificate: {}\n", material.fingerprint());
    Zeroizing::new(match target {
        Target::Traefik(_) => format!(
            "{head}tls:\n  certificates:\n    - certFile: \"{fullchain}\"\n      keyFile: \"{key}\"\n"
        ),
        Target::Envoy(_) => {
            let name = pem.secret_name.as_deref().unwrap_or("server_cert");
            let (chain, key) = if pem.key.is_some() {
                (format!(" {{ filename: \"{fullchain}\" }}\n"), format!(" {{ filename: \"{key}\" }}\n"))
            } else {
                (inline(&material.fullchain_pem()), inline(&material.key_pem()))
            };
            format!(
                "{head}resources:\n- \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  \
                 name: \"{name}\"\n  tls_certificate:\n    certificate_chain:{chain}    private_key:{key}"
            )
        }
        _ => String::new(),
    })
}

/// Formats a YAML block scalar under `inline_string`.
fn inline(pem: &str) -> String {
    let lines: String = pem.lines().map(|line| format!("        {line}\n")).collect();
    format!("\n      inline_string: |\n{lines}")
}

fn keystore_needs(store: &KeystoreTarget) -> TargetRequirements {
    let seconds = store.hook_seconds.unwrap_or(HOOK_SECONDS);
    TargetRequirements {
        files: vec![NeededFile { spec: store.file.clone(), private: true, place: DirectoryOwner::Host }],
        validate: hook(store.validate.as_ref(), &[], seconds),
        reload: hook(store.reload.as_ref(), &[], seconds),
        verify: store.verify.clone(),
    }
}

fn keystore_content(store: &KeystoreTarget, material: &Material) -> Result<Content, KeystoreError> {
    let alias = store.alias.as_deref().unwrap_or(ALIAS);
    let password = &store.password;
    Ok(match store.format {
        KeystoreFormat::Jks => (keystore::jks(material, alias, password.expose()), None),
        KeystoreFormat::Pkcs12 => {
            let content = keystore::pkcs12(material, alias, password.expose())?;
            (content, Some(keystore::pkcs12_content_matcher(material, alias, password)))
        }
    })
}

/// Returns the files and the command that an `exec` target needs. The command acts as the reload command, so a rollback runs it
/// again with the old files.
fn exec_needs(exec: &ExecTarget, own: &Path) -> TargetRequirements {
    let told = MaterialPaths {
        cert: own.join("cert.pem"),
        chain: own.join("chain.pem"),
        fullchain: own.join("fullchain.pem"),
        key: own.join("key.pem"),
    };
    let files = [(&told.key, true), (&told.cert, false), (&told.chain, false), (&told.fullchain, false)];
    let needed = |(path, private): (&std::path::PathBuf, bool)| NeededFile {
        spec: FileSpec { path: path.clone(), owner: None, group: None, mode: None },
        private,
        place: DirectoryOwner::Agent,
    };
    let seconds = exec.hook_seconds.unwrap_or(HOOK_SECONDS);
    TargetRequirements {
        files: files.into_iter().map(needed).collect(),
        validate: None,
        reload: Some(Hook { command: exec.command.clone(), seconds, told: Some(told) }),
        verify: exec.verify.clone(),
    }
}

fn exec_contents(material: &Material) -> Vec<Content> {
    let all = [
        material.key_pem().as_bytes().to_vec(),
        material.cert_pem().into_bytes(),
        material.chain_pem().into_bytes(),
        material.fullchain_pem().into_bytes(),
    ];
    all.map(|content| (Zeroizing::new(content), None)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_type_has_its_validate_and_reload_commands() {
        let table = [
            ("nginx", "nginx -t", "nginx -s reload"),
            ("apache", "apachectl configtest", "apachectl graceful"),
            ("haproxy", "haproxy -c -f /etc/haproxy/haproxy.cfg", "systemctl reload haproxy"),
            (
                "caddy",
                "caddy validate --config /etc/caddy/Caddyfile",
                "caddy reload --config /etc/caddy/Caddyfile --force",
            ),
            ("traefik", "", ""),
            ("envoy", "", ""),
            ("postfix", "postfix check", "postfix reload"),
            ("dovecot", "doveconf -n", "doveadm reload"),
            ("files", "", ""),
        ];
        for (kind, validate, reload) in table {
            let target: Target = serde_json::from_value(serde_json::json!({"type": kind})).unwrap();
            assert_eq!(target.kind(), kind);
            let commands = target_commands(&target);
            assert_eq!((commands.0.join(" ").as_str(), commands.1.join(" ").as_str()), (validate, reload));
        }
    }
}
