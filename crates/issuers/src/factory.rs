//! An issuer built from its configuration.

use crate::config::IssuerConfig;
use crate::context::IssuerContext;
use crate::error::IssuerError;
use crate::host_policy::HostPolicy;
use crate::issuer::{Issuer, IssuerIdentity};
use crate::{acme, exec, internal, step_ca, vault, webhook};

/// Whether the host allows what the configuration asks for. Opens nothing and connects to nothing.
///
/// # Errors
/// [`IssuerError::Misconfigured`] names what the host's configuration lacks.
pub(crate) fn check(config: &IssuerConfig, host: &HostPolicy) -> Result<(), IssuerError> {
    config.files().into_iter().try_for_each(|file| host.files.check(file))?;
    config.programs().into_iter().try_for_each(|name| host.programs.get(name).map(drop))
}

/// An issuer as configured, without limits, checks and memory: those are [`crate::Issuers`]' concern.
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
