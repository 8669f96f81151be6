//! ACME directories (RFC 8555 section 7.1.1).

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::respond::put;
use super::validate::account_hash_prefix;
use super::{Method, Server, respond};
use crate::profile::ProfileError;

impl Server {
    /// Returns the ACME directory of a profile; of the default profile if `profile` is `None`.
    pub(crate) async fn directory(&self, profile: Option<&str>) -> Result<Response<Bytes>, Problem> {
        let (name, options) = self.directory_options(profile)?;
        self.profile(name).await?;
        let within = |resource: &str| match profile {
            Some(profile) => self.url(format_args!("{profile}/{resource}")),
            None => self.url(resource),
        };
        let mut profiles = Map::new();
        for offered in std::iter::once(name).chain(options.profiles.iter().map(String::as_str)) {
            // A deleted profile is not offered.
            if let Ok(found) = self.profile(offered).await {
                let own = self.options.directory(offered).map(|own| own.description).unwrap_or_default();
                let text = [own, found.description.clone(), offered.to_owned()];
                let text = text.into_iter().find(|text| !text.is_empty());
                put(&mut profiles, offered, text.map(Value::from));
            }
        }
        let mut meta = Map::new();
        put(&mut meta, "termsOfService", self.options.terms_of_service.clone().map(Value::from));
        put(&mut meta, "website", self.options.website.clone().map(Value::from));
        put(&mut meta, "externalAccountRequired", Some(options.external_account_required.into()));
        put(&mut meta, "profiles", Some(profiles.into()));
        let identities = &self.options.caa_identities;
        put(&mut meta, "caaIdentities", (!identities.is_empty()).then(|| identities.clone().into()));
        if !identities.is_empty() && options.methods.contains(&Method::DnsPersist01) {
            put(&mut meta, "issuerDomainNames", Some(identities.clone().into()));
            put(&mut meta, "accountHashPrefix", Some(account_hash_prefix(&self.options.base_url).into()));
        }
        let directory = json!({
            "newNonce": self.url("new-nonce"),
            "newAccount": within("new-account"),
            "newOrder": within("new-order"),
            "newAuthz": within("new-authz"),
            "revokeCert": self.url("revoke-cert"),
            "keyChange": self.url("key-change"),
            "renewalInfo": self.url("renewal-info"),
            "meta": meta,
        });
        respond::json(StatusCode::OK, &directory)
    }

    /// Returns the profile with this name, or the ACME problem for the client.
    pub(crate) async fn profile(
        &self,
        name: &str,
    ) -> Result<std::sync::Arc<crate::profile::Profile>, Problem> {
        self.authority.profile(name).await.map_err(|error| match error {
            ProfileError::Unknown(_) => {
                Problem::malformed("unknown ACME directory").status(StatusCode::NOT_FOUND)
            }
            ProfileError::Store(error) => super::problem::read_failed(&error),
            error => {
                tracing::error!(%error, profile = name, "cannot load a profile");
                Problem::internal()
            }
        })
    }
}
