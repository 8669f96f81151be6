//! `[authority]`, and the sources of master keys.

use std::path::{Path, PathBuf};

use cli::exit::{Outcome, Problem};
use cli::url::is_unencrypted;
use keys::{Pcrs, Tpm, TpmError};
use serde::{Deserialize, Serialize};

use super::pkcs11::Pkcs11Settings;
use super::programs::ProgramConfigs;

/// Configuration section `[authority]`: master keys, and the CRLs and OCSP responses of the server's CAs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthoritySettings {
    pub(crate) master_key_file: PathBuf,
    pub(crate) old_master_key_files: Vec<PathBuf>,
    pub(crate) master_key: Option<MasterKeySettings>,
    pub(crate) old_master_keys: Vec<MasterKeySettings>,
    pub(crate) crl_hours: u32,
    pub(crate) crl_shards: u32,
    pub(crate) ocsp_hours: u32,
    pub(crate) private_suffixes: Vec<String>,
}

impl Default for AuthoritySettings {
    fn default() -> Self {
        Self {
            master_key_file: PathBuf::new(),
            old_master_key_files: Vec::new(),
            master_key: None,
            old_master_keys: Vec::new(),
            crl_hours: 48,
            crl_shards: 0,
            ocsp_hours: 12,
            private_suffixes: Vec::new(),
        }
    }
}

/// The source of a master key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum MasterKeySettings {
    /// A file of 32 bytes.
    File(PathBuf),
    /// A passphrase, from which argon2id derives the key.
    Passphrase(PassphraseSettings),
    /// An AES key in the security module of `[pkcs11]`.
    Pkcs11(ModuleSettings),
    /// A program of the operator that encrypts the master key's file.
    Program(ProgramSettings),
    /// A key of a Vault or OpenBao transit engine that encrypts the master key's file.
    Vault(VaultSettings),
    /// A key of AWS KMS that encrypts the master key's file.
    AwsKms(AwsKmsSettings),
    /// A TPM 2.0 that seals the master key's file.
    Tpm(TpmSettings),
}

/// A passphrase in a file or in an environment variable.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PassphraseSettings {
    #[serde(default)]
    pub(crate) file: PathBuf,
    #[serde(default)]
    pub(crate) variable: String,
    /// File of the argon2id parameters, written at the first start.
    pub(crate) parameters_file: PathBuf,
}

/// A key in the security module that encrypts the master key's file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModuleSettings {
    pub(crate) key_label: String,
    pub(crate) wrapped_file: PathBuf,
}

/// A program that encrypts the master key's file: the program of a section `[programs.NAME]`, or a command in this section.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramSettings {
    /// `NAME` of `[programs.NAME]`; the time limit of that section then applies.
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) command: Vec<String>,
    pub(crate) wrapped_file: PathBuf,
    #[serde(default = "a_minute")]
    pub(crate) timeout_s: u64,
}

fn a_minute() -> u64 {
    60
}

/// A key of a Vault or OpenBao transit engine that encrypts the master key's file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VaultSettings {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) token_file: PathBuf,
    pub(crate) wrapped_file: PathBuf,
    #[serde(default = "transit")]
    pub(crate) mount: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) ca_file: PathBuf,
}

fn transit() -> String {
    "transit".to_owned()
}

/// A key of AWS KMS that encrypts the master key's file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AwsKmsSettings {
    pub(crate) key_id: String,
    pub(crate) region: String,
    pub(crate) wrapped_file: PathBuf,
    /// Endpoint that replaces the default endpoint of the region.
    #[serde(default)]
    pub(crate) endpoint: String,
}

/// A TPM that seals the master key's file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TpmSettings {
    pub(crate) wrapped_file: PathBuf,
    #[serde(default = "resource_manager")]
    pub(crate) device: String,
    /// Platform configuration registers (PCRs) that the key is sealed to.
    #[serde(default)]
    pub(crate) pcrs: Vec<u8>,
    /// File of the authorisation value that the TPM requires; empty: none.
    #[serde(default)]
    pub(crate) auth_file: PathBuf,
}

fn resource_manager() -> String {
    "/dev/tpmrm0".to_owned()
}

impl TpmSettings {
    /// Returns the TPM, with this authorisation value.
    pub(crate) fn tpm(&self, auth: &[u8]) -> Result<Tpm, TpmError> {
        Tpm::new(self.device.parse()?, Pcrs::new(&self.pcrs)?, auth)
    }
}

impl MasterKeySettings {
    /// Returns a description of the key's source for messages: its files, and the key or program that wraps it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::File(path) => format!("the file {}", path.display()),
            Self::Passphrase(of) => format!("a passphrase with {}", of.parameters_file.display()),
            Self::Pkcs11(of) => {
                format!(
                    "{}, wrapped by the key {:?} of the security module",
                    of.wrapped_file.display(),
                    of.key_label
                )
            }
            Self::Program(of) => {
                let program = of.command.first().unwrap_or(&of.name);
                format!("{}, wrapped by the program {program}", of.wrapped_file.display())
            }
            Self::Vault(of) => {
                format!(
                    "{}, wrapped by the key {} of {}/{}",
                    of.wrapped_file.display(),
                    of.key,
                    of.url,
                    of.mount
                )
            }
            Self::Tpm(of) => format!("{}, sealed by the TPM {}", of.wrapped_file.display(), of.device),
            Self::AwsKms(of) => {
                format!("{}, wrapped by the key {} of AWS KMS", of.wrapped_file.display(), of.key_id)
            }
        }
    }

    /// Returns the files that the operator must create before the first start.
    pub(crate) fn needed(&self) -> Vec<&Path> {
        let all: [&Path; 2] = match self {
            Self::File(path) => [path, Path::new("")],
            Self::Passphrase(of) => [&of.file, Path::new("")],
            Self::Vault(of) => [&of.token_file, &of.ca_file],
            Self::Tpm(of) => [&of.auth_file, Path::new("")],
            Self::Pkcs11(_) | Self::Program(_) | Self::AwsKms(_) => return Vec::new(),
        };
        all.into_iter().filter(|path| !path.as_os_str().is_empty()).collect()
    }

    fn check(&self, key: &str, pkcs11: &Pkcs11Settings, programs: &ProgramConfigs) -> Outcome<()> {
        let refuse = |what: String, hint: &str| Err(Problem::usage(what).hint(hint));
        let absent = |path: &Path| path.as_os_str().is_empty();
        match self {
            Self::Passphrase(of) if absent(&of.file) == of.variable.is_empty() => {
                let what = format!("{key}.passphrase needs exactly one of file and variable");
                refuse(what, "give the file with the passphrase, or the environment variable that holds it")
            }
            Self::Pkcs11(_) if absent(&pkcs11.module) => refuse(
                format!("{key} is a key in a security module, but no module is configured"),
                "configure the module in [pkcs11]: module, token_label, pin_file",
            ),
            Self::Program(of) if of.command.first().is_none_or(String::is_empty) == of.name.is_empty() => {
                refuse(
                    format!("{key}.program needs exactly one of name and command"),
                    "give the NAME of [programs.NAME], or a list: command = [\"/etc/bulla/unwrap\"]",
                )
            }
            Self::Program(of) if !of.name.is_empty() && !programs.contains_key(&of.name) => refuse(
                format!("{key}.program: no section [programs.{}]", of.name),
                "add that section with argv, or correct the name",
            ),
            // An hour is enough time for every human approval.
            Self::Program(of) if !(1..=3_600).contains(&of.timeout_s) => {
                refuse(format!("{key}.program.timeout_s must be from 1 to 3600"), "60 is a usual value")
            }
            Self::Tpm(of) => of.tpm(&[]).map(drop).or_else(|error| {
                refuse(format!("{key}.tpm: {error}"), "correct device and pcrs; /dev/tpmrm0 is usual")
            }),
            Self::AwsKms(_) if cfg!(not(feature = "aws")) => refuse(
                format!("{key} is a key of AWS KMS, but this build lacks AWS support"),
                "build with `--features aws`, or use `program` with the AWS CLI",
            ),
            Self::Vault(VaultSettings { url, .. }) | Self::AwsKms(AwsKmsSettings { endpoint: url, .. })
                if is_unencrypted(url) =>
            {
                refuse(
                    format!("{key}: the master key would be sent to {url} unencrypted"),
                    "use https; plain http is accepted only for an address of this machine",
                )
            }
            _ => Ok(()),
        }
    }
}

impl AuthoritySettings {
    /// Returns the current master key, if the configuration names one.
    pub(crate) fn current_master(&self) -> Option<MasterKeySettings> {
        let file = Some(&self.master_key_file).filter(|path| !path.as_os_str().is_empty());
        self.master_key.clone().or_else(|| file.cloned().map(MasterKeySettings::File))
    }

    /// Returns the earlier master keys of the configuration.
    pub(crate) fn older_masters(&self) -> Vec<MasterKeySettings> {
        let files = self.old_master_key_files.iter().cloned().map(MasterKeySettings::File);
        files.chain(self.old_master_keys.iter().cloned()).collect()
    }

    pub(super) fn check_masters(&self, pkcs11: &Pkcs11Settings, programs: &ProgramConfigs) -> Outcome<()> {
        if self.master_key.is_some() && !self.master_key_file.as_os_str().is_empty() {
            return Err(Problem::usage("authority.master_key and authority.master_key_file are both set")
                .hint("leave one of them out"));
        }
        if let Some(key) = &self.master_key {
            key.check("authority.master_key", pkcs11, programs)?;
        }
        let mut older = self.old_master_keys.iter();
        older.try_for_each(|key| key.check("authority.old_master_keys", pkcs11, programs))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    fn load(file: Option<&str>, variables: &[(&str, &str)]) -> Outcome<Configuration> {
        Configuration::from_parts(
            file.map(|text| ("bulla.toml".into(), text.to_owned())),
            variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        )
    }

    #[test]
    fn master_key_requires_exactly_one_source_of_a_known_kind() {
        let program = r#"{ program = { command = ["/bin/wrap"], wrapped_file = "/k" } }"#;
        let loaded = load(None, &[("BULLA_AUTHORITY_MASTER_KEY", program)]).unwrap();
        assert!(matches!(loaded.settings.authority.current_master(), Some(MasterKeySettings::Program(_))));
        let reloaded = load(Some(&loaded.show()), &[]).unwrap();
        assert!(reloaded.settings.authority.master_key.is_some(), "{}", loaded.show());
        let named = "[authority]\nmaster_key = { program = { name = \"wrap\", wrapped_file = \"/k\" } }\n\
                     [programs.wrap]\nargv = [\"/bin/wrap\"]\n";
        assert!(load(Some(named), &[]).is_ok());
        let file = "[authority]\nmaster_key_file = \"/a\"\nold_master_keys = [{ file = \"/b\" }]\n";
        let loaded = load(Some(file), &[]).unwrap().settings.authority;
        assert!(
            matches!(loaded.current_master(), Some(MasterKeySettings::File(path)) if path == Path::new("/a"))
        );
        assert!(
            matches!(&loaded.older_masters()[..], [MasterKeySettings::File(path)] if path == Path::new("/b"))
        );
        for wrong in [
            r#"{ passphrase = { parameters_file = "/p" } }"#,
            r#"{ passphrase = { file = "/f", variable = "V", parameters_file = "/p" } }"#,
            r#"{ passphrase = { file = "/f" } }"#,
            r#"{ pkcs11 = { key_label = "kek", wrapped_file = "/w" } }"#,
            r#"{ program = { command = [], wrapped_file = "/w" } }"#,
            r#"{ program = { name = "wrap", command = ["/p"], wrapped_file = "/w" } }"#,
            r#"{ program = { name = "wrap", wrapped_file = "/w" } }"#,
            r#"{ program = { command = ["/p"], wrapped_file = "/w", timeout_s = 0 } }"#,
            r#"{ vault = { url = "https://v" } }"#,
            r#"{ vault = { url = "http://v:8200", key = "k", token_file = "/t", wrapped_file = "/w" } }"#,
            r#"{ tpm = { } }"#,
            r#"{ tpm = { wrapped_file = "/w", device = "tpm" } }"#,
            r#"{ tpm = { wrapped_file = "/w", pcrs = [24] } }"#,
            r#"{ luna = "/x" }"#,
            r#"{ file = "/x", passphrase = { file = "/f", parameters_file = "/p" } }"#,
            "nonsense",
        ] {
            let error = load(None, &[("BULLA_AUTHORITY_MASTER_KEY", wrong)]).unwrap_err();
            assert_eq!(error.exit, cli::exit::Exit::Usage, "{wrong}");
            assert!(error.hint.is_some(), "{wrong}");
        }
        let both = "[authority]\nmaster_key_file = \"/a\"\nmaster_key = { file = \"/b\" }\n";
        assert!(load(Some(both), &[]).unwrap_err().message.contains("both"));
    }
}
