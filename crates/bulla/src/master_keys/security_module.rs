//! The security module of `[pkcs11]`. CAs with `key_provider` `pkcs11` have their keys in it.

use std::sync::Arc;

use authority::keystore::KeyStore;
use keys::pkcs11::{Token, TokenConfig, WrappedMaster};
use keys::{KeyRef, MasterKey};

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
        let token = opened.map_err(|error| Problem::new(Exit::Machine, chain(&error)))?.map_err(|error| {
            Problem::new(Exit::Machine, chain(&error)).hint("check [pkcs11] in the configuration")
        })?;
        Ok(Self(Some(token)))
    }

    pub(super) fn master(&self, of: &ModuleSettings, create: bool) -> Outcome<MasterKey> {
        let token = self.0.clone().ok_or_else(|| Problem::usage("pkcs11.module is empty"))?;
        let (key_label, path) = (of.key_label.clone(), of.wrapped_file.clone());
        Ok(MasterKey::Pkcs11(WrappedMaster { token, key_label, path, create }))
    }

    pub(super) async fn keys(&self, name: &str, labels: &[String]) -> Outcome<Vec<KeyRef>> {
        let token = self.0.as_ref().ok_or_else(|| {
            Problem::usage(format_args!("{name} names keys, and pkcs11.module is empty"))
                .hint("name the security module in [pkcs11]")
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

    pub(super) fn provide(self, keystore: &KeyStore) {
        if let Some(token) = self.0 {
            keystore.add_provider(Arc::new(token));
        }
    }
}
