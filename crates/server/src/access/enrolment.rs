//! Passwords for EST and SCEP: API tokens with permission to request certificates of the profile.

use authority::enrolment::{EnrolmentPassword, EnrolmentUser, PasswordError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use x509::csr::CertificateRequest;

use super::{AccessControl, Object, Permission, TOKEN_PREFIX, token_hash};

/// Check of an API token that is used as the password: with any user name over EST, or as the challenge password over SCEP.
///
/// The token needs `certificate.request` within the profile's scope. For example, `bulla token create printers --role
/// issuer=profile:printers` creates a token for a type of device. Deleting the token revokes this access. A token that another node
/// deletes stays valid for a few seconds, because of the cache.
#[derive(Clone)]
pub struct TokenPasswords(AccessControl);

impl TokenPasswords {
    /// Creates a check of the API tokens in this database.
    #[must_use]
    pub fn new(access: AccessControl) -> Self {
        Self(access)
    }

    async fn holder(&self, profile: &str, token: &str) -> Result<Option<EnrolmentUser>, PasswordError> {
        if !token.starts_with(TOKEN_PREFIX) {
            return Ok(None);
        }
        match self.0.token(token_hash(token)).await {
            Ok(caller) => {
                let rights = caller
                    .check_ownership_rights(Permission::CertificateRequest, Object::profile(profile))
                    .ok();
                let actor = caller.actor().to_owned();
                Ok(rights.map(|rights| EnrolmentUser { actor, rights }))
            }
            Err(problem) if problem.status().is_server_error() => {
                Err(PasswordError("the token database does not answer".to_owned()))
            }
            Err(_) => Ok(None),
        }
    }
}

impl EnrolmentPassword for TokenPasswords {
    fn user<'a>(
        &'a self,
        profile: &'a str,
        _: &'a str,
        password: &'a str,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>> {
        self.holder(profile, password).boxed()
    }

    fn challenge<'a>(
        &'a self,
        profile: &'a str,
        password: &'a str,
        _: &'a CertificateRequest,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>> {
        self.holder(profile, password).boxed()
    }
}
