//! Credential values: parsed from API requests, formatted for API responses, serialized for encryption.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use keys::{KeyError, PrivateKey, Secret, SecretJson, Signer as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sha_crypt::{PasswordHasher as _, ShaCrypt};
use x509::{Certificate, SpkiHash};
use zeroize::Zeroizing;

use crate::{CredentialError, Kind, ssh};

/// Maximum bytes of a value as JSON. Same as the limit of a request body.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Maximum characters of a certificate, in PEM.
const CERTIFICATE_CHARS_MAX: usize = 7_000;

/// Maximum bytes of a user's password. Hashing a password of this length takes 40 ms, because each of the 5,000 rounds reads the
/// whole password.
const USER_PASSWORD_BYTES_MAX: usize = 4_096;

/// Bytes of the salt of a password hash. The encoded salt has 16 characters, the maximum of crypt(5).
const SALT: usize = 12;

const MISSING_VALUE: &str =
    "A non-empty value must be specified for the credential. Please validate and retry your request.";
const MISSING_PASSWORD: &str =
    "A password value must be specified for the credential. Please validate and retry your request.";
const MISSING_CERTIFICATE: &str =
    "At least one certificate attribute must be set. Please validate your input and retry your request.";
const MISSING_KEYS: &str =
    "At least one key value must be set. Please validate your input and retry your request.";
const TOO_LONG: &str =
    "The provided certificate value is too long. Certificate lengths must be less than 7000 characters.";
const NOT_CERTIFICATE: &str = "The provided certificate value is not a valid X509 certificate.";
const NOT_CA: &str = "The provided CA value is not a valid X509 certificate authority.";
const NOT_SIGNED: &str = "The provided certificate was not signed by the CA specified in the 'ca' property.";
const OTHER_KEY: &str = "The provided certificate does not match the private key.";
const BAD_REQUEST: &str = "The request could not be fulfilled because the request path or body did not meet \
                           expectation. Please check the documentation for required formatting and retry your request.";

/// The user name and password of a credential of type `user`.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct UserValue {
    /// The user name, if any.
    pub username: Option<String>,
    /// The password; never empty.
    #[serde(serialize_with = "keys::secret::exposed")]
    pub password: Secret,
    /// SHA-512-crypt of the password. Computed once, because clients expect the same hash in every response.
    pub password_hash: String,
}

impl std::fmt::Debug for UserValue {
    /// Formats without the password and its hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserValue").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Versions of the CA that a certificate's `ca` field contains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CaVersions {
    /// Only the version that signed the certificate.
    Signer,
    /// While the CA is being replaced, also its other version, because clients must trust both.
    All,
}

/// The value of a credential of type `certificate`; at least one part is present.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct CertificateValue {
    /// Certificate of the CA that signed, PEM.
    pub ca: Option<String>,
    /// Other version of the CA's certificate while the CA is being replaced, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_ca: Option<String>,
    /// The certificate, PEM.
    pub certificate: Option<String>,
    /// Private key of the certificate, PEM.
    #[serde(serialize_with = "keys::secret::exposed_option")]
    pub private_key: Option<Secret>,
}

impl CertificateValue {
    /// Returns the CA certificates to trust, PEM, the signing one first.
    #[must_use]
    pub fn trusted(&self, versions: CaVersions) -> Option<String> {
        let ca = self.ca.as_ref()?;
        let other = self.trusted_ca.as_ref().filter(|_| versions == CaVersions::All);
        Some(other.map_or_else(|| ca.clone(), |other| format!("{}\n{}", ca.trim_end(), other)))
    }

    /// Returns the parsed certificate; `None` if it is absent or cannot be parsed.
    #[must_use]
    pub fn parsed(&self) -> Option<Certificate> {
        certificate_of(self.certificate.as_deref()?)
    }
}

/// The value of a credential of type `rsa` or `ssh`; at least one key of the pair is present.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeyPair {
    /// A PEM SubjectPublicKeyInfo for a generated RSA key, a line for `authorized_keys` for a generated SSH key. Any text if the
    /// key pair was set and not generated.
    pub public_key: Option<String>,
    /// PEM for a generated key. Any text if the key pair was set and not generated.
    #[serde(serialize_with = "keys::secret::exposed_option")]
    pub private_key: Option<Secret>,
}

/// The value of a credential. Each variant is a credential type of CredHub.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Any text (type `value`).
    Value(Secret),
    /// Any JSON (type `json`), byte for byte as it was set.
    Json(SecretJson),
    /// A password (type `password`).
    Password(Secret),
    /// A user name with its password (type `user`).
    User(UserValue),
    /// A certificate with its private key and CA (type `certificate`).
    Certificate(CertificateValue),
    /// An RSA key pair (type `rsa`).
    Rsa(KeyPair),
    /// An SSH key pair (type `ssh`).
    Ssh(KeyPair),
}

impl std::fmt::Debug for Value {
    /// Formats only the type, because JSON and set keys may contain secrets in every part.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Value").field(&self.kind()).finish()
    }
}

/// Request format of a certificate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateInput {
    ca: Option<String>,
    ca_name: Option<String>,
    certificate: Option<String>,
    private_key: Option<Secret>,
}

/// Request format of a user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserInput {
    username: Option<String>,
    password: Option<Secret>,
}

/// Request format of a key pair.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyPairInput {
    public_key: Option<String>,
    private_key: Option<Secret>,
}

/// A value parsed from a request. For a certificate, also the name of its CA.
pub(crate) struct SubmittedValue {
    pub(crate) value: Value,
    pub(crate) ca_name: Option<String>,
}

impl Value {
    /// Returns the type of the value.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Value(_) => Kind::Value,
            Self::Json(_) => Kind::Json,
            Self::Password(_) => Kind::Password,
            Self::User(_) => Kind::User,
            Self::Certificate(_) => Kind::Certificate,
            Self::Rsa(_) => Kind::Rsa,
            Self::Ssh(_) => Kind::Ssh,
        }
    }

    /// Parses the value of a type from a request. Hashes a user's password, which blocks the thread for up to 40 ms.
    pub(crate) fn submitted(
        kind: Kind,
        value: SecretJson,
        any_key: bool,
    ) -> Result<SubmittedValue, CredentialError> {
        let plain = |value| SubmittedValue { value, ca_name: None };
        let parsed = readable(&value)?;
        Ok(match kind {
            Kind::Value => plain(Self::Value(text(parsed, &value, MISSING_VALUE)?)),
            Kind::Password => plain(Self::Password(text(parsed, &value, MISSING_PASSWORD)?)),
            Kind::Json if parsed.is_null() => return Err(CredentialError::bad(MISSING_VALUE)),
            Kind::Json => plain(Self::Json(value)),
            Kind::User => plain(Self::User(user(parts(parsed)?)?)),
            Kind::Certificate => certificate(parts(parsed)?, any_key)?,
            Kind::Rsa => plain(Self::Rsa(key_pair(parts(parsed)?)?)),
            Kind::Ssh => plain(Self::Ssh(key_pair(parts(parsed)?)?)),
        })
    }

    /// Returns the value in the response format. `versions` selects the CA versions in a certificate's `ca` field.
    #[must_use]
    pub fn response(&self, versions: CaVersions) -> SecretJson {
        let response = match self {
            Self::Json(value) => return value.clone(),
            Self::Value(text) | Self::Password(text) => json!(text.expose()),
            Self::User(user) => json!(user),
            Self::Certificate(certificate) => json!({
                "ca": certificate.trusted(versions),
                "certificate": certificate.certificate,
                "private_key": certificate.private_key.as_ref().map(Secret::expose),
            }),
            Self::Rsa(pair) => json!(pair),
            Self::Ssh(pair) => json!({
                "public_key": pair.public_key,
                "private_key": pair.private_key.as_ref().map(Secret::expose),
                "public_key_fingerprint": pair.public_key.as_deref().and_then(fingerprint),
            }),
        };
        response.into()
    }

    /// Serializes the value for encryption.
    pub(crate) fn serialize_for_sealing(&self) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        let written = match self {
            Self::Value(text) | Self::Password(text) => serde_json::to_vec(text.expose()),
            Self::Json(value) => Ok(value.expose().as_bytes().to_vec()),
            Self::User(user) => serde_json::to_vec(user),
            Self::Certificate(certificate) => serde_json::to_vec(certificate),
            Self::Rsa(pair) | Self::Ssh(pair) => serde_json::to_vec(pair),
        };
        let written = Zeroizing::new(written.map_err(|error| CredentialError::Internal(error.to_string()))?);
        if written.len() > VALUE_BYTES_MAX { Err(CredentialError::TooLarge) } else { Ok(written) }
    }

    /// Deserializes the output of [`Self::serialize_for_sealing`].
    pub(crate) fn decrypted(kind: Kind, bytes: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            Kind::Value => Self::Value(serde_json::from_slice(bytes)?),
            Kind::Password => Self::Password(serde_json::from_slice(bytes)?),
            Kind::Json => Self::Json(serde_json::from_slice(bytes)?),
            Kind::User => Self::User(serde_json::from_slice(bytes)?),
            Kind::Certificate => Self::Certificate(serde_json::from_slice(bytes)?),
            Kind::Rsa => Self::Rsa(serde_json::from_slice(bytes)?),
            Kind::Ssh => Self::Ssh(serde_json::from_slice(bytes)?),
        })
    }
}

/// Parses a value. Rejects JSON that other programs, such as clients of this API, could not read again: numbers beyond the range of
/// `f64`, more than 127 levels, and halves of surrogate pairs.
pub(crate) fn readable(value: &SecretJson) -> Result<Json, CredentialError> {
    value.parse().map_err(|_| CredentialError::bad(BAD_REQUEST))
}

/// Returns the text of a `parsed` value. A number keeps all its digits, as written in `submitted`.
fn text(parsed: Json, submitted: &SecretJson, missing: &str) -> Result<Secret, CredentialError> {
    match parsed {
        Json::String(text) if !text.is_empty() => Ok(Secret::new(text)),
        // Same as the JSON parser of CredHub.
        Json::Number(_) => Ok(Secret::new(submitted.expose())),
        Json::Bool(truth) => Ok(Secret::new(truth.to_string())),
        Json::Null | Json::String(_) => Err(CredentialError::bad(missing)),
        Json::Array(_) | Json::Object(_) => Err(CredentialError::bad(BAD_REQUEST)),
    }
}

fn parts<T: for<'de> Deserialize<'de>>(value: Json) -> Result<T, CredentialError> {
    if value.is_null() {
        return Err(CredentialError::bad(MISSING_VALUE));
    }
    serde_json::from_value(value).map_err(|error| invalid_value(&error))
}

/// Converts a JSON error into the error for an invalid request.
pub(crate) fn invalid_value(error: &serde_json::Error) -> CredentialError {
    let text = error.to_string();
    let unknown = text.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    match unknown {
        Some(field) => CredentialError::bad(format!(
            "The request includes an unrecognized parameter '{field}'. Please update or remove this parameter and \
             retry your request."
        )),
        None => CredentialError::bad(BAD_REQUEST),
    }
}

fn user(input: UserInput) -> Result<UserValue, CredentialError> {
    let password = input.password.filter(|password| !password.expose().is_empty());
    let password = password.ok_or_else(|| CredentialError::bad(MISSING_PASSWORD))?;
    UserValue::new(input.username, password)
}

impl UserValue {
    /// Creates a user and hashes its password, which blocks the thread for up to 40 ms.
    pub(crate) fn new(username: Option<String>, password: Secret) -> Result<Self, CredentialError> {
        if password.expose().len() > USER_PASSWORD_BYTES_MAX {
            return Err(CredentialError::TooLarge);
        }
        let internal = |what: &str| CredentialError::Internal(what.to_owned());
        let mut salt = [0; SALT];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| internal("no randomness"))?;
        let hash = ShaCrypt::default().hash_password_with_salt(password.expose().as_bytes(), &salt);
        let hash = hash.map_err(|_| internal("a password could not be hashed"))?;
        // 5,000 rounds are the default of crypt(5), which CredHub leaves out of the hash.
        let password_hash = hash.as_str().replacen("rounds=5000$", "", 1);
        Ok(Self { username, password, password_hash })
    }
}

fn key_pair(input: KeyPairInput) -> Result<KeyPair, CredentialError> {
    let public_key = input.public_key.filter(|key| !key.is_empty());
    let private_key = input.private_key.filter(|key| !key.expose().is_empty());
    if public_key.is_none() && private_key.is_none() {
        return Err(CredentialError::bad(MISSING_KEYS));
    }
    Ok(KeyPair { public_key, private_key })
}

fn certificate(input: CertificateInput, any_key: bool) -> Result<SubmittedValue, CredentialError> {
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (ca, ca_name) = (non_empty(input.ca), non_empty(input.ca_name));
    let certificate = non_empty(input.certificate);
    let private_key = input.private_key.filter(|key| !key.expose().is_empty());
    if ca.is_none() && certificate.is_none() && private_key.is_none() {
        return Err(CredentialError::bad(MISSING_CERTIFICATE));
    }
    if ca.is_some() && ca_name.is_some() {
        return Err(CredentialError::bad(
            "Only one of the values 'ca_name' and 'ca' may be provided. Please update and retry your request.",
        ));
    }
    let value = CertificateValue { ca, trusted_ca: None, certificate, private_key };
    value.check(any_key)?;
    Ok(SubmittedValue { value: Value::Certificate(value), ca_name })
}

impl CertificateValue {
    /// Checks the CredHub requirements on a certificate that is set.
    fn check(&self, any_key: bool) -> Result<(), CredentialError> {
        let all = [self.ca.as_ref(), self.certificate.as_ref()];
        if all.into_iter().flatten().any(|text| text.chars().count() > CERTIFICATE_CHARS_MAX) {
            return Err(CredentialError::bad(TOO_LONG));
        }
        let read = |text: &String, why: &str| certificate_of(text).ok_or_else(|| CredentialError::bad(why));
        let ca = self.ca.as_ref().map(|ca| read(ca, NOT_CA)).transpose()?;
        let own = self.certificate.as_ref().map(|own| read(own, NOT_CERTIFICATE)).transpose()?;
        // A self-signed certificate is its own CA, whatever its extensions say.
        let itself = |ca: &Certificate| own.as_ref().is_some_and(|own| own.fingerprint == ca.fingerprint);
        if ca.as_ref().is_some_and(|ca| !is_ca_certificate(ca) && !itself(ca)) {
            return Err(CredentialError::bad(NOT_CA));
        }
        if let (Some(ca), Some(own)) = (&ca, &own)
            && !signed_by(own, ca)
        {
            return Err(CredentialError::bad(NOT_SIGNED));
        }
        if let (Some(own), Some(key)) = (&own, &self.private_key) {
            let spki = private_key_spki_hash(key, any_key)?;
            if spki != own.public_key.spki_sha256 {
                return Err(CredentialError::bad(OTHER_KEY));
            }
        }
        Ok(())
    }
}

/// Parses the first certificate of a PEM text.
pub(crate) fn certificate_of(pem: &str) -> Option<Certificate> {
    let (_, der) = x509::pem::certificates(pem.as_bytes()).next()?;
    Certificate::parse(&der).ok()
}

pub(crate) fn is_ca_certificate(certificate: &Certificate) -> bool {
    certificate.basic_constraints.is_some_and(|constraints| constraints.ca)
}

/// Returns whether `ca` signed the certificate: compares the name and verifies the signature.
pub(crate) fn signed_by(certificate: &Certificate, ca: &Certificate) -> bool {
    certificate.issuer.der == ca.subject.der && certificate.signed_by(&ca.public_key).is_ok()
}

/// Returns the hash of a private key's public half; CredHub accepts RSA only.
fn private_key_spki_hash(key: &Secret, any_key: bool) -> Result<SpkiHash, CredentialError> {
    let malformed = |why: &str| CredentialError::bad(format!("Private key is malformed. {why}"));
    let key = PrivateKey::from_pem(key.expose()).map_err(|error| match error {
        KeyError::Encrypted | KeyError::LegacyEncryption => {
            malformed("Key file is not in PKCS#1 or unencrypted PKCS#8 format")
        }
        KeyError::Unsupported(_) => malformed("Key file does not contain an RSA private key"),
        _ => malformed("Key file is not in PKCS#1 or unencrypted PKCS#8 format"),
    })?;
    if key.key_type().rsa_bits().is_none() && !any_key {
        return Err(malformed("Key file does not contain an RSA private key"));
    }
    Ok(key.spki_hash())
}

/// Returns the SHA-256 fingerprint of an SSH public key, as `ssh-keygen -l` computes it; `None` if the line is not a public key.
fn fingerprint(line: &str) -> Option<String> {
    let blob = ssh::blob(line)?;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &blob);
    Some(STANDARD_NO_PAD.encode(hash))
}
