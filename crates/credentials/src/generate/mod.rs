//! Generation of values from parameters.

mod certificate;
mod password;
mod rsa;

use keys::{RsaStock, Secret, Signer as _};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use certificate::{CertificateParameters, DURATION_MAX};
pub(crate) use certificate::{Published, SigningCa};
pub use password::PasswordParameters;
use rsa::rsa_kind;

use crate::value::{KeyPair, UserValue, Value, invalid_value};
use crate::{CredentialError, Kind, Name, ssh};

/// Characters of a generated user name.
const USERNAME_CHARS: usize = 20;

/// Maximum characters of an SSH key's comment.
const COMMENT_CHARS_MAX: usize = 1_024;

const NOT_GENERATED: &str =
    "Credentials of this type cannot be generated. Please adjust the credential type and retry your request.";
const NO_PARAMETERS: &str = "This request must include a value for 'parameters'.";

/// Behavior of a generate request if the credential already exists.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Keep the value, unless its parameters changed or its CA has a new certificate.
    #[default]
    Converge,
    /// Keep the existing value.
    NoOverwrite,
    /// Add a new version.
    Overwrite,
}

/// Parameters for generating an RSA key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RsaParameters {
    /// RSA key length in bits: 2,048, 3,072 or 4,096.
    pub key_length: u32,
}

impl Default for RsaParameters {
    fn default() -> Self {
        Self { key_length: 2_048 }
    }
}

/// Parameters for generating an SSH key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SshParameters {
    /// RSA key length in bits: 2,048, 3,072 or 4,096.
    pub key_length: u32,
    /// Comment after the public key.
    pub ssh_comment: String,
}

impl Default for SshParameters {
    fn default() -> Self {
        Self { key_length: 2_048, ssh_comment: String::new() }
    }
}

/// Parameters for generating a credential of type `user`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct UserParameters {
    /// The user name. Generated if absent.
    pub username: Option<String>,
    /// Parameters of the password.
    #[serde(flatten)]
    pub password: PasswordParameters,
}

/// Parameters for generating a value, by type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Parameters {
    /// Parameters of a credential of type `password`.
    Password(PasswordParameters),
    /// Parameters of a credential of type `user`.
    User(UserParameters),
    /// Parameters of a credential of type `rsa`.
    Rsa(RsaParameters),
    /// Parameters of a credential of type `ssh`.
    Ssh(SshParameters),
    /// Parameters of a credential of type `certificate`.
    Certificate(Box<CertificateParameters>),
}

/// A request to generate a value.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Name of the credential to set.
    pub name: Name,
    /// The type and its parameters.
    pub parameters: Parameters,
    /// Behavior if the credential already exists.
    pub mode: Mode,
    /// Metadata to store with the value.
    pub metadata: Option<Json>,
    /// Time to live of the version in seconds, 1–[`TTL_S_MAX`](crate::TTL_S_MAX).
    pub ttl_s: Option<u64>,
}

impl GenerateRequest {
    /// Creates a request without metadata and without a time to live.
    #[must_use]
    pub fn new(name: Name, parameters: Parameters, mode: Mode) -> Self {
        Self { name, parameters, mode, metadata: None, ttl_s: None }
    }
}

impl Parameters {
    /// Parses parameters. `value` is the `value` field of the request: for the type `user`, it may contain the user name.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] with a message for the caller.
    pub fn read(kind: Kind, parameters: Option<Json>, value: Option<Json>) -> Result<Self, CredentialError> {
        let parameters = parameters.filter(|given| !given.is_null());
        Ok(match kind {
            Kind::Password => Self::Password(read::<PasswordParameters>(parameters)?.checked()?),
            Kind::User => Self::User(user(parameters, value)?),
            Kind::Rsa => {
                let rsa: RsaParameters = read(parameters)?;
                rsa_kind(rsa.key_length)?;
                Self::Rsa(rsa)
            }
            Kind::Ssh => {
                let ssh: SshParameters = read(parameters)?;
                rsa_kind(ssh.key_length)?;
                if ssh.ssh_comment.chars().count() > COMMENT_CHARS_MAX
                    || ssh.ssh_comment.chars().any(char::is_control)
                {
                    return Err(CredentialError::bad(
                        "The SSH comment can have at most 1024 characters and no control characters.",
                    ));
                }
                Self::Ssh(ssh)
            }
            Kind::Certificate => {
                let given = parameters.ok_or_else(|| CredentialError::bad(NO_PARAMETERS))?;
                let parameters: CertificateParameters = read(Some(given))?;
                Self::Certificate(Box::new(parameters.checked()?))
            }
            Kind::Value | Kind::Json => return Err(CredentialError::bad(NOT_GENERATED)),
        })
    }

    /// Returns the type of the generated value.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Password(_) => Kind::Password,
            Self::User(_) => Kind::User,
            Self::Rsa(_) => Kind::Rsa,
            Self::Ssh(_) => Kind::Ssh,
            Self::Certificate(_) => Kind::Certificate,
        }
    }

    /// Returns the parameters as stored with the value, for comparison and regeneration.
    pub(crate) fn serialized(&self) -> Json {
        let written = match self {
            Self::Password(parameters) => serde_json::to_value(parameters),
            Self::User(parameters) => serde_json::to_value(parameters),
            Self::Rsa(parameters) => serde_json::to_value(parameters),
            Self::Ssh(parameters) => serde_json::to_value(parameters),
            Self::Certificate(parameters) => serde_json::to_value(parameters),
        };
        written.unwrap_or_default()
    }

    /// Parses stored parameters, the output of [`Self::serialized`].
    pub(crate) fn from_serialized(kind: Kind, serialized: &Json) -> Option<Self> {
        let serialized = serialized.clone();
        match kind {
            Kind::Password => serde_json::from_value(serialized).ok().map(Self::Password),
            Kind::User => serde_json::from_value(serialized).ok().map(Self::User),
            Kind::Rsa => serde_json::from_value(serialized).ok().map(Self::Rsa),
            Kind::Ssh => serde_json::from_value(serialized).ok().map(Self::Ssh),
            Kind::Certificate => {
                serde_json::from_value(serialized).ok().map(|read| Self::Certificate(Box::new(read)))
            }
            Kind::Value | Kind::Json => None,
        }
    }
}

fn read<T: for<'de> Deserialize<'de> + Default>(given: Option<Json>) -> Result<T, CredentialError> {
    given.map_or_else(
        || Ok(T::default()),
        |given| serde_json::from_value(given).map_err(|error| invalid_value(&error)),
    )
}

fn user(parameters: Option<Json>, value: Option<Json>) -> Result<UserParameters, CredentialError> {
    let mut parameters = parameters.unwrap_or_else(|| Json::Object(serde_json::Map::new()));
    let name = |from: Option<Json>| match from {
        Some(Json::String(name)) if !name.is_empty() => Ok(Some(name)),
        None | Some(Json::Null | Json::String(_)) => Ok(None),
        Some(_) => Err(CredentialError::bad("The username must be a string.")),
    };
    let parameters_username = parameters.as_object_mut().and_then(|fields| fields.remove("username"));
    let value_username =
        value.and_then(|mut value| value.as_object_mut().and_then(|fields| fields.remove("username")));
    let username = name(value_username)?.or(name(parameters_username)?);
    let password: PasswordParameters = read(Some(parameters))?;
    Ok(UserParameters { username, password: password.checked()? })
}

/// Generates a value of any type except certificates, which need a CA.
pub(crate) async fn make(parameters: &Parameters, stock: &RsaStock) -> Result<Value, CredentialError> {
    Ok(match parameters {
        Parameters::Password(parameters) => Value::Password(parameters.make()?),
        Parameters::User(parameters) => Value::User(make_user(parameters.clone()).await?),
        Parameters::Rsa(parameters) => {
            let key = stock.take_or_generate(rsa_kind(parameters.key_length)?).await?;
            Value::Rsa(KeyPair {
                public_key: Some(x509::pem::encode("PUBLIC KEY", key.spki())),
                private_key: Some(key.to_traditional_pem().into()),
            })
        }
        Parameters::Ssh(parameters) => {
            let key = stock.take_or_generate(rsa_kind(parameters.key_length)?).await?;
            Value::Ssh(KeyPair {
                public_key: ssh::rsa_line(key.spki(), &parameters.ssh_comment),
                private_key: Some(key.to_traditional_pem().into()),
            })
        }
        Parameters::Certificate(_) => {
            return Err(CredentialError::Internal("no CA was given to sign the certificate".to_owned()));
        }
    })
}

async fn make_user(parameters: UserParameters) -> Result<UserValue, CredentialError> {
    let blocking_task = tokio::task::spawn_blocking(move || {
        let username = match parameters.username {
            Some(name) => name,
            None => PasswordParameters::letters(USERNAME_CHARS).make()?.expose().to_owned(),
        };
        let password: Secret = parameters.password.make()?;
        UserValue::new(Some(username), password)
    });
    blocking_task.await.map_err(|error| CredentialError::Internal(error.to_string()))?
}
