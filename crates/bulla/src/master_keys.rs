//! The master keys of the configuration, and a check that they match the database.

use std::path::Path;
use std::time::Duration;

use authority::keystore::{KeyStore, MasterKeyCheckError};
use cli::exit::{Exit, Outcome, Problem, chain};
use issuers::IssuerError;
use issuers::custody::{Program, Transit, TransitConfig};
use keys::{
    Argon2Cost, KeyRef, Keyring, KeyringConfig, KeyringError, MasterKeySource, PassphraseSource, Secret,
    UnwrappedKey, Wrapper,
};
use outbound::resolve::Resolver;
use secrecy::{ExposeSecret, SecretString};
use store::{Clock, Store};

use crate::config::{AuthoritySettings, MasterKeySettings, Settings};
use crate::data_folder;
use crate::files;
use discover::database;

/// The master key's file in the data folder.
const MASTER_KEY: &str = "master.key";
/// The master key's file of a signer process.
const MASTER_KEY_OF_SIGNER: &str = "signer.key";

/// The documentation of all ways to store the master key.
const DOCUMENT: &str = "docs/control-plane.md#move-the-master-key-out";

/// Returns the key store with the configured master keys. If the database does not know these keys, this is an error and nothing is
/// written. `create`: whether to create a missing master key.
pub(crate) async fn keystore(
    settings: &Settings,
    store: &Store,
    clock: &Clock,
    resolver: &Resolver,
    create: bool,
) -> Outcome<KeyStore> {
    let module = Module::open(settings).await?;
    let ring = keyring(settings, &module, resolver, MASTER_KEY, create).await?;
    let keystore = KeyStore::new(store.clone(), ring, clock.clone());
    keystore.verify_master_keys().await.map_err(master_key_error)?;
    module.add_to_keystore(&keystore);
    Ok(keystore)
}

/// Returns the signer's key store: CA keys under the signer's own master key. If none is configured, creates one in the data folder.
/// Rejects a master key that the server also has.
pub(crate) async fn signer_keystore(
    settings: &Settings,
    store: &Store,
    clock: &Clock,
    resolver: &Resolver,
) -> Outcome<KeyStore> {
    let module = Module::open(settings).await?;
    let ring = keyring(settings, &module, resolver, MASTER_KEY_OF_SIGNER, true).await?;
    let known = store::Keys::of(store).master().await.map_err(|error| database::problem(&error))?;
    if known.iter().any(|row| row.id == *ring.current().as_bytes()) {
        return Err(Problem::usage("the signer and the server have the same master key").hint(
            "give the signer a separate master key: another BULLA_DATA folder, or authority.master_key",
        ));
    }
    Ok(KeyStore::new(store.clone(), ring, clock.clone()))
}

/// Adds the configured security module (PKCS #11).
pub(crate) async fn add_pkcs11_module(settings: &Settings, keystore: &KeyStore) -> Outcome<()> {
    Module::open(settings).await?.add_to_keystore(keystore);
    Ok(())
}

/// Returns advice to move the master key out of the database that it protects. Empty if the configuration names another location.
pub(crate) fn advice(settings: &AuthoritySettings) -> Outcome<String> {
    if settings.current_master().is_some() {
        return Ok(String::new());
    }
    let path = data_folder::folder()?.join(MASTER_KEY);
    let path = path.display();
    Ok(format!(
        "the master key is {path}, next to the database that it encrypts. To move it:\n  systemd credential, sealed to the \
         TPM   systemd-creds encrypt --with-key=host+tpm2 --name=master.key {path} \
         /etc/credstore.encrypted/master.key\n  passphrase, PKCS#11, Vault, KMS         authority.master_key = {{ … }}, \
         then `bulla key master rotate`\n  each of them step by step               {DOCUMENT}\n"
    ))
}

/// Returns the keys with these labels on the token of `[pkcs11]`. `key` is the configuration key that names the labels.
pub(crate) async fn token_keys(settings: &Settings, key: &str, labels: &[String]) -> Outcome<Vec<KeyRef>> {
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    Module::open(settings).await?.keys(key, labels).await
}

/// Returns the keyring that seals a node's own key. Missing files of the master key are created.
pub(crate) async fn node_keyring(
    settings: &Settings,
    key: &MasterKeySettings,
    resolver: &Resolver,
) -> Outcome<Keyring> {
    let module = Module::open(settings).await?;
    let current = master(settings, key, true, &module, resolver).await?;
    let config = KeyringConfig { current, older: Vec::new() };
    // Deriving a key from a passphrase blocks a thread for about a second.
    let opened = tokio::task::spawn_blocking(move || Keyring::open(&config)).await;
    opened.map_err(|error| Problem::new(Exit::Machine, chain(&error)))?.map_err(|error| {
        Problem::new(Exit::Machine, chain(&error))
            .hint("check keys.node.seed_key and the permissions of its files")
    })
}

/// Returns the lines of `bulla config check` about master keys. Opens no key and contacts no service.
pub(crate) fn described(settings: &AuthoritySettings) -> Outcome<Vec<String>> {
    let readable = |key: &MasterKeySettings| {
        key.needed().into_iter().try_for_each(|path| {
            std::fs::File::open(path).map(drop).map_err(|error| {
                Problem::usage(format_args!("{}: {}: {error}", key.shown(), path.display()))
                    .hint("create the file, or correct [authority] in the configuration")
            })
        })
    };
    let mut lines = Vec::new();
    for (which, key) in settings
        .current_master()
        .into_iter()
        .map(|key| ("the master key", key))
        .chain(settings.older_masters().into_iter().map(|key| ("a previous one", key)))
    {
        readable(&key)?;
        lines.push(format!("{which}: {}", key.shown()));
    }
    Ok(lines)
}

async fn keyring(
    settings: &Settings,
    module: &Module,
    resolver: &Resolver,
    file: &str,
    create: bool,
) -> Outcome<Keyring> {
    let current = match settings.authority.current_master() {
        Some(key) => master(settings, &key, create, module, resolver).await?,
        None => MasterKeySource::File { path: data_folder::folder()?.join(file), create },
    };
    let mut older = Vec::new();
    for key in settings.authority.older_masters() {
        older.push(master(settings, &key, false, module, resolver).await?);
    }
    // Deriving a key from a passphrase blocks a thread for about a second.
    let opened = tokio::task::spawn_blocking(move || Keyring::open(&KeyringConfig { current, older })).await;
    opened.map_err(|error| Problem::new(Exit::Machine, chain(&error)))?.map_err(|error| keyring_error(&error))
}

/// Opens one master key. If `current`, creates a missing file of the wrapped key or of the passphrase's parameters. A file that
/// contains the unwrapped key is never created.
async fn master(
    settings: &Settings,
    key: &MasterKeySettings,
    current: bool,
    module: &Module,
    resolver: &Resolver,
) -> Outcome<MasterKeySource> {
    match key {
        MasterKeySettings::File(path) => Ok(MasterKeySource::File { path: path.clone(), create: false }),
        MasterKeySettings::Passphrase(of) => {
            let passphrase = match of.variable.as_str() {
                "" => files::secret("passphrase.file", &of.file)?,
                variable => secret_from_env(variable)?,
            };
            let parameters = of.parameters_file.clone();
            let create = current.then(Argon2Cost::default);
            Ok(MasterKeySource::Passphrase(PassphraseSource { passphrase, parameters, create }))
        }
        MasterKeySettings::Pkcs11(of) => module.master(of, current),
        MasterKeySettings::Program(of) => {
            let program = match of.name.as_str() {
                "" => Program::new(&of.command, Duration::from_secs(of.timeout_s)),
                name => Program::named(&settings.program(name)?, name),
            };
            let program = program.map_err(|error| wrong(&error))?;
            unwrapped(&of.wrapped_file, &program, current).await
        }
        MasterKeySettings::Vault(of) => {
            let roots = match of.ca_file.as_os_str().is_empty() {
                true => None,
                false => Some(std::fs::read_to_string(&of.ca_file).map_err(|error| {
                    Problem::usage(format_args!("cannot read {}: {error}", of.ca_file.display()))
                        .hint("check vault.ca_file of the master key")
                })?),
            };
            let token = files::secret("vault.token_file", &of.token_file)?;
            let config = TransitConfig {
                url: of.url.clone(),
                mount: of.mount.clone(),
                key: of.key.clone(),
                namespace: Some(of.namespace.clone()).filter(|text| !text.is_empty()),
                token: Secret::new(token.expose_secret()),
                roots,
            };
            let transit = Transit::new(config, resolver).map_err(|error| wrong(&error))?;
            unwrapped(&of.wrapped_file, &transit, current).await
        }
        MasterKeySettings::Tpm(of) => {
            let auth = match of.auth_file.as_os_str().is_empty() {
                true => SecretString::default(),
                false => files::secret("tpm.auth_file", &of.auth_file)?,
            };
            let tpm = of.tpm(auth.expose_secret().as_bytes()).map_err(|error| {
                Problem::usage(error).hint("correct the master key's tpm: device, pcrs, auth_file")
            })?;
            unwrapped(&of.wrapped_file, &tpm, current).await
        }
        MasterKeySettings::AwsKms(of) => {
            let kms = aws::wrapper(of).await?;
            unwrapped(&of.wrapped_file, kms.as_ref(), current).await
        }
    }
}

async fn unwrapped(path: &Path, wrapper: &dyn Wrapper, create: bool) -> Outcome<MasterKeySource> {
    let key = UnwrappedKey::load(
        path,
        wrapper,
        if create { keys::MissingFileAction::Create } else { keys::MissingFileAction::Refuse },
    )
    .await;
    key.map(MasterKeySource::Unwrapped).map_err(|error| keyring_error(&error))
}

fn secret_from_env(variable: &str) -> Outcome<SecretString> {
    let found = std::env::var(variable).map(SecretString::from);
    found.map_err(|_| {
        Problem::usage(format_args!(
            "the passphrase of the master key must be in {variable}, which is not set"
        ))
        .hint("set it for this process, or name a file: passphrase = { file = …, parameters_file = … }")
    })
}

fn wrong(error: &IssuerError) -> Problem {
    Problem::usage(chain(error)).hint("correct authority.master_key (or old_master_keys)")
}

fn keyring_error(error: &KeyringError) -> Problem {
    Problem::new(Exit::Machine, chain(error)).hint(
        "check the master keys in [authority] and the permissions of their files; without the master key, no stored key \
         can be decrypted",
    )
}

fn master_key_error(error: MasterKeyCheckError) -> Problem {
    let message = format!("{}; nothing was written", chain(&error));
    match error {
        MasterKeyCheckError::Wrong { .. } => Problem::new(Exit::Machine, message).hint(
            "set the master key in [authority] to the key that the database is encrypted with; to change to another key, \
             keep this one in the old master keys until `bulla key master rotate` is done",
        ),
        MasterKeyCheckError::Canary { .. } => Problem::new(Exit::Inventory, message)
            .hint("the database was changed or partly restored: restore it, with the master key of the same time"),
        MasterKeyCheckError::Store(error) => database::problem(&error),
    }
}

/// Logs the number of values sealed under master keys that this node does not have. Runs after startup, because it counts all
/// values.
pub(crate) async fn log_missing_master_keys(keystore: KeyStore) {
    match keystore.master_keys_in_use().await {
        Ok(all) => {
            for key in all.iter().filter(|key| !key.configured && key.total() > 0) {
                tracing::error!(
                    master_key = %key.id,
                    values = key.total(),
                    "values are encrypted with a master key that is not configured: add it to the old master keys"
                );
            }
        }
        Err(error) => tracing::warn!(%error, "cannot count the values encrypted with each master key"),
    }
}

use module::Module;

/// The security module, if one is configured. Authorities created with `key_provider` `pkcs11` have their keys in it.
mod module {
    use std::sync::Arc;

    use authority::keystore::KeyStore;
    use keys::pkcs11::{Token, TokenConfig, WrappedMasterKey};
    use keys::{KeyRef, MasterKeySource};

    use crate::config::{ModuleSettings, Settings};
    use cli::exit::{Exit, Outcome, Problem, chain};

    pub(super) struct Module(Option<Token>);

    impl Module {
        pub(super) async fn open(settings: &Settings) -> Outcome<Self> {
            let settings = &settings.pkcs11;
            if settings.module.as_os_str().is_empty() {
                return Ok(Self(None));
            }
            let pin = crate::files::secret("pkcs11.pin_file", &settings.pin_file)?;
            let config = TokenConfig::new(&settings.module, &settings.token_label, pin);
            let opened = tokio::task::spawn_blocking(move || Token::open(config)).await;
            let token =
                opened.map_err(|error| Problem::new(Exit::Machine, chain(&error)))?.map_err(|error| {
                    Problem::new(Exit::Machine, chain(&error)).hint("check [pkcs11] in the configuration")
                })?;
            Ok(Self(Some(token)))
        }

        pub(super) fn master(&self, of: &ModuleSettings, create: bool) -> Outcome<MasterKeySource> {
            let token = self.0.clone().ok_or_else(|| Problem::usage("pkcs11.module is empty"))?;
            let (key_label, path) = (of.key_label.clone(), of.wrapped_file.clone());
            Ok(MasterKeySource::Pkcs11(WrappedMasterKey { token, key_label, path, create }))
        }

        pub(super) async fn keys(&self, name: &str, labels: &[String]) -> Outcome<Vec<KeyRef>> {
            let token = self.0.as_ref().ok_or_else(|| {
                Problem::usage(format_args!("{name} names keys, but pkcs11.module is empty"))
                    .hint("set the library of the security module in [pkcs11]")
            })?;
            let mut keys: Vec<KeyRef> = Vec::new();
            for label in labels {
                let key = token.key_by_label(label).await.map_err(|error| {
                    Problem::new(Exit::Machine, chain(&error)).hint(format!("correct {name}"))
                })?;
                keys.push(Arc::new(key));
            }
            Ok(keys)
        }

        pub(super) fn add_to_keystore(self, keystore: &KeyStore) {
            if let Some(token) = self.0 {
                keystore.add_provider(Arc::new(token));
            }
        }
    }
}

#[cfg(not(feature = "aws"))]
mod aws {
    use cli::exit::{Outcome, Problem};
    use keys::Wrapper;

    use crate::config::AwsKmsSettings;

    /// Always fails in a build without AWS. The configuration check rejects this case earlier.
    pub(super) async fn wrapper(_: &AwsKmsSettings) -> Outcome<Box<dyn Wrapper>> {
        Err(Problem::usage("the master key is in AWS KMS, but this build lacks AWS support")
            .hint("build with `--features aws`"))
    }
}

#[cfg(feature = "aws")]
mod aws {
    use cli::exit::{Exit, Outcome, Problem, chain};
    use cloud_apis::auth::aws::AwsOptions;
    use cloud_apis::auth::http::HttpClient;
    use cloud_apis::key_services::KmsKey;
    use futures_util::future::{BoxFuture, FutureExt};
    use keys::Wrapper;
    use zeroize::Zeroizing;

    use crate::config::AwsKmsSettings;

    /// Value in the encryption context, which CloudTrail logs.
    const PURPOSE: &str = "bulla master key 1";

    /// Creates the AWS KMS client that encrypts the master key's file.
    pub(super) async fn wrapper(of: &AwsKmsSettings) -> Outcome<Box<dyn Wrapper>> {
        let http = HttpClient::new(&[]).map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
        let endpoint = Some(of.endpoint.clone()).filter(|url| !url.is_empty());
        let options = AwsOptions { endpoint, credentials: None };
        let key = KmsKey::new(&of.key_id, &of.region, PURPOSE, &options, http).await;
        Ok(Box::new(Kms(key)))
    }

    struct Kms(KmsKey);

    impl Wrapper for Kms {
        fn name(&self) -> &'static str {
            "aws_kms"
        }

        fn wrap<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>> {
            async { self.0.encrypt(key).await.map_err(|error| chain(&error)) }.boxed()
        }

        fn unwrap_key<'a>(&'a self, wrapped: &'a [u8]) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, String>> {
            async { self.0.decrypt(wrapped).await.map_err(|error| chain(&error)) }.boxed()
        }
    }
}
