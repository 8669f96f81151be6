//! Construction of issuers from their configuration.

use crate::config::IssuerConfig;
use crate::context::IssuerContext;
use crate::error::IssuerError;
use crate::host_policy::HostPolicy;
use crate::issuer::{Issuer, IssuerIdentity};
use crate::{acme, exec, internal, step_ca, vault, webhook};

/// Checks an issuer's configuration against the restrictions of the host's configuration. Opens no file and no connection.
///
/// # Errors
/// [`IssuerError::Misconfigured`] names the missing setting of the host's configuration.
pub(crate) fn check(config: &IssuerConfig, host: &HostPolicy) -> Result<(), IssuerError> {
    config.files().into_iter().try_for_each(|file| host.files.check(file))?;
    config.programs().into_iter().try_for_each(|name| host.programs.get(name).map(drop))
}

/// Builds an issuer from its configuration, without limits, checks and stored state, which [`crate::Issuers`] adds.
pub(crate) fn build(
    identity: &IssuerIdentity,
    config: &IssuerConfig,
    context: &IssuerContext,
) -> Result<Box<dyn Issuer>, IssuerError> {
    let config = config.clone().guarded(context.host.guard);
    Ok(match &config {
        IssuerConfig::Internal(config) => {
            Box::new(internal::Internal::new(config, context.authority.clone()))
        }
        IssuerConfig::Acme(config) => Box::new(acme::Acme::new(identity, config, context)?),
        IssuerConfig::Vault(config) => {
            Box::new(vault::Vault::new(config, context.clock.clone(), &context.resolver, &context.host)?)
        }
        IssuerConfig::StepCa(config) => {
            Box::new(step_ca::StepCa::new(config, context.clock.clone(), &context.resolver)?)
        }
        IssuerConfig::Exec(config) => Box::new(exec::Exec::new(config, &context.host.programs)?),
        IssuerConfig::Webhook(config) => Box::new(webhook::Webhook::new(identity, config, context)?),
    })
}
