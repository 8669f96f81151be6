//! From a target and a certificate to files and commands. Pure: nothing is read or written.

use std::path::Path;

use enrollment::Material;
use zeroize::Zeroizing;

use super::hook::{Hook, MaterialPaths};
use super::keystore::{self, KeystoreError, SameContent};
use super::target::{ALIAS, ExecTarget, FileSpec, KeystoreFormat, KeystoreTarget, PemTarget, Target, Verify};

/// Seconds a hook may take when nothing else is said.
const HOOK_SECONDS: u32 = 60;

/// A file to be.
pub(crate) struct PlannedFile {
    pub(crate) spec: FileSpec,
    pub(crate) content: Zeroizing<Vec<u8>>,
    /// Holds a key.
    pub(crate) private: bool,
    pub(crate) same: Option<SameContent>,
}

/// Everything a deployment will do, in order.
pub(crate) struct Plan {
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) validate: Option<Hook>,
    pub(crate) reload: Option<Hook>,
    pub(crate) verify: Option<Verify>,
}

/// The commands of a kind: validate, reload.
type Commands = (&'static [&'static str], &'static [&'static str]);

fn commands_of(target: &Target) -> Commands {
    match target {
        Target::Nginx(_) => (&["nginx", "-t"], &["nginx", "-s", "reload"]),
        Target::Apache(_) => (&["apachectl", "configtest"], &["apachectl", "graceful"]),
        Target::Haproxy(_) => {
            (&["haproxy", "-c", "-f", "/etc/haproxy/haproxy.cfg"], &["systemctl", "reload", "haproxy"])
        }
        Target::Caddy(_) => (
            &["caddy", "validate", "--config", "/etc/caddy/Caddyfile"],
            // Without --force Caddy sees an unchanged configuration and leaves the old certificate.
            &["caddy", "reload", "--config", "/etc/caddy/Caddyfile", "--force"],
        ),
        Target::Postfix(_) => (&["postfix", "check"], &["postfix", "reload"]),
        Target::Dovecot(_) => (&["doveconf", "-n"], &["doveadm", "reload"]),
        // Both watch their file.
        Target::Traefik(_) | Target::Envoy(_) => (&[], &[]),
        Target::Files(_) | Target::Pkcs12(_) | Target::Jks(_) | Target::Exec(_) => (&[], &[]),
    }
}

impl Plan {
    /// What to do for `target`. `own` is a folder of the agent's for this target, where `exec` finds its files.
    pub(crate) fn of(target: &Target, material: &Material, own: &Path) -> Result<Self, KeystoreError> {
        Ok(match target {
            Target::Exec(exec) => of_exec(exec, material, own),
            Target::Pkcs12(store) | Target::Jks(store) => of_keystore(store, material)?,
            Target::Nginx(pem) | Target::Apache(pem) | Target::Haproxy(pem) | Target::Caddy(pem) => {
                of_pem(target, pem, material)
            }
            Target::Traefik(pem) | Target::Envoy(pem) | Target::Postfix(pem) | Target::Dovecot(pem) => {
                of_pem(target, pem, material)
            }
            Target::Files(pem) => of_pem(target, pem, material),
        })
    }
}

fn of_pem(target: &Target, pem: &PemTarget, material: &Material) -> Plan {
    let key = material.key_pem();
    let combined = Zeroizing::new(format!("{}{}", material.fullchain_pem(), &*key));
    // The key comes before the certificate and a watched file comes last: whoever watches finds all of it.
    let files = [
        (&pem.key, key.as_bytes().to_vec(), true),
        (&pem.cert, material.cert_pem().into_bytes(), false),
        (&pem.chain, material.chain_pem().into_bytes(), false),
        (&pem.fullchain, material.fullchain_pem().into_bytes(), false),
        (&pem.combined, combined.as_bytes().to_vec(), true),
        (&pem.config, config(target, pem, material).as_bytes().to_vec(), pem.key.is_none()),
    ];
    let (validate, reload) = commands_of(target);
    let seconds = pem.hook_seconds.unwrap_or(HOOK_SECONDS);
    Plan {
        files: files
            .into_iter()
            .filter_map(|(spec, content, private)| file(spec, content, private))
            .collect(),
        validate: hook(pem.validate.as_ref(), validate, seconds),
        reload: hook(pem.reload.as_ref(), reload, seconds),
        verify: pem.verify.clone(),
    }
}

fn file(spec: &Option<FileSpec>, content: Vec<u8>, private: bool) -> Option<PlannedFile> {
    let content = Zeroizing::new(content);
    Some(PlannedFile { spec: spec.clone()?, content, private, same: None })
}

fn hook(given: Option<&Vec<String>>, preset: &[&str], seconds: u32) -> Option<Hook> {
    let argv = given.cloned().unwrap_or_else(|| preset.iter().map(|&text| text.to_owned()).collect());
    (!argv.is_empty()).then_some(Hook { argv, seconds, told: None })
}

/// The file in the server's own language. The fingerprint in it changes with the certificate, so that the watcher sees
/// a change.
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

/// A YAML block scalar under `inline_string`.
fn inline(pem: &str) -> String {
    let lines: String = pem.lines().map(|line| format!("        {line}\n")).collect();
    format!("\n      inline_string: |\n{lines}")
}

fn of_keystore(store: &KeystoreTarget, material: &Material) -> Result<Plan, KeystoreError> {
    let alias = store.alias.as_deref().unwrap_or(ALIAS);
    let password = &store.password;
    let (content, same): (_, Option<SameContent>) = match store.format {
        KeystoreFormat::Jks => (keystore::jks(material, alias, password.expose()), None),
        KeystoreFormat::Pkcs12 => {
            let content = keystore::pkcs12(material, alias, password.expose())?;
            (content, Some(keystore::same_pkcs12(material, alias, password)))
        }
    };
    let seconds = store.hook_seconds.unwrap_or(HOOK_SECONDS);
    Ok(Plan {
        files: vec![PlannedFile { spec: store.file.clone(), content, private: true, same }],
        validate: hook(store.validate.as_ref(), &[], seconds),
        reload: hook(store.reload.as_ref(), &[], seconds),
        verify: store.verify.clone(),
    })
}

/// The command is what "reload" is elsewhere; so it runs again with the old files when it has to be undone.
fn of_exec(exec: &ExecTarget, material: &Material, own: &Path) -> Plan {
    let spec = |name: &str| -> Option<FileSpec> {
        Some(FileSpec { path: own.join(name), owner: None, group: None, mode: None })
    };
    let told = MaterialPaths {
        cert: own.join("cert.pem"),
        chain: own.join("chain.pem"),
        fullchain: own.join("fullchain.pem"),
        key: own.join("key.pem"),
    };
    let files = [
        (spec("key.pem"), material.key_pem().as_bytes().to_vec(), true),
        (spec("cert.pem"), material.cert_pem().into_bytes(), false),
        (spec("chain.pem"), material.chain_pem().into_bytes(), false),
        (spec("fullchain.pem"), material.fullchain_pem().into_bytes(), false),
    ];
    let seconds = exec.hook_seconds.unwrap_or(HOOK_SECONDS);
    Plan {
        files: files
            .into_iter()
            .filter_map(|(spec, content, private)| file(&spec, content, private))
            .collect(),
        validate: None,
        reload: Some(Hook { argv: exec.command.clone(), seconds, told: Some(told) }),
        verify: exec.verify.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_commands() {
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
            let commands = commands_of(&target);
            assert_eq!((commands.0.join(" ").as_str(), commands.1.join(" ").as_str()), (validate, reload));
        }
    }
}
