//! Checks that the objects a certificate refers to still belong to its team. Runs before each issuance, with any issuer.

use api::access::Object;
use authority::teams::{OwnedKind, Ownership, OwnershipRights, QuotaError};
use x509::DistinguishedName;

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::managed::{ManagedCertificate, TargetRef};

impl Lifecycle {
    /// Checks profile, issuer, names and targets against the team, and counts the certificate against the team's quota. Returns the
    /// reason if the certificate must not be issued now.
    pub(super) async fn check_teams(
        &self,
        certificate: &ManagedCertificate,
    ) -> Result<Result<(), String>, DataError> {
        let ownership = self.inner.teams.ownership().await?;
        let object = self.object_of(certificate, &ownership).await?;
        let team = match ownership.check_issue(&object, &OwnershipRights::Everything) {
            Ok(team) => team,
            Err(crossing) => return Ok(Err(crossing.to_string())),
        };
        let Some(team) = team.or(certificate.team.as_deref()) else { return Ok(Ok(())) };
        match self.inner.teams.count(team, self.now_us()).await {
            Ok(()) => Ok(Ok(())),
            Err(QuotaError::Over(over)) => Ok(Err(over.to_string())),
            Err(QuotaError::Store(error)) => Err(error.into()),
        }
    }

    async fn object_of(
        &self,
        certificate: &ManagedCertificate,
        ownership: &Ownership,
    ) -> Result<Object, DataError> {
        let mut targets = Vec::new();
        if ownership.owns_any(OwnedKind::Target) {
            for target in &certificate.targets {
                let TargetRef::Deploy { target, .. } = target else { continue };
                let found = agent::tables::Agents::of(&self.inner.store).target(*target).await?;
                targets.extend(found.map(|row| row.settings.name));
            }
        }
        let subject = certificate.options.subject.as_deref().map(DistinguishedName::from_text);
        let subject = subject.and_then(Result::ok).map(|subject| subject.common_names.to_vec());
        let common = subject.into_iter().flatten().filter(|name| name.contains('.'));
        let names = certificate.names.iter().map(ToString::to_string).chain(common);
        Ok(Object {
            issuer: Some(certificate.issuer.clone()),
            team: certificate.team.clone(),
            targets: Some(targets),
            ..Object::profile(&certificate.profile).with_names(names)
        })
    }
}
