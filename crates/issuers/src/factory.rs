//! An issuer built from its configuration.

use crate::config::IssuerConfig;
use crate::context::IssuerContext;
use crate::error::IssuerError;
use crate::issuer::{Issuer, IssuerIdentity};
use crate::{acme, exec, internal, step_ca, vault, webhook};

/// An issuer as configured, without limits, checks and memory: those are [`crate::Issuers`]' concern.
pub(crate) fn build(
    identity: &IssuerIdentity,
    config: &IssuerConfig,
    context: &IssuerContext,
) -> Result<Box<dyn Issuer>, IssuerError> {
    Ok(match config {
        IssuerConfig::Internal(config) => {
            Box::new(internal::Internal::new(config, context.authority.clone()))
        }
        IssuerConfig::Acme(config) => Box::new(acme::Acme::new(identity, config, context)?),
        IssuerConfig::Vault(config) => {
            Box::new(vault::Vault::new(config, context.clock.clone(), &context.resolver)?)
        }
        IssuerConfig::StepCa(config) => {
            Box::new(step_ca::StepCa::new(config, context.clock.clone(), &context.resolver)?)
        }
        IssuerConfig::Exec(config) => Box::new(exec::Exec::new(config)?),
        IssuerConfig::Webhook(config) => Box::new(webhook::Webhook::new(identity, config, context)?),
    })
}
