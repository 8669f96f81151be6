//! Generation of certificates from their parameters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::tree::Ca;
use aws_lc_rs::rand;
use keys::{KeyType, PrivateKey, Signer as _};
use serde::{Deserialize, Deserializer, Serialize};
use x509::build::{self, Attribute, CertificateSpec, Extension};
use x509::{BasicConstraints, Certificate, GeneralName, KeyUsage, SerialNumber, UnixTime};

use super::rsa::rsa_kind;
use crate::options::CredentialsOptions;
use crate::value::CertificateValue;
use crate::{CredentialError, Facts};

/// Default validity of a generated certificate in days.
const DURATION: u32 = 365;
/// Maximum validity of a generated certificate in days.
pub const DURATION_MAX: u32 = 3_650;
const DAY_SECONDS: i64 = 86_400;

/// Maximum alternative names of one certificate. Matches the limit of the CA.
const NAMES_MAX: usize = 1_000;

/// Timeout of a signature.
const SIGN_TIMEOUT: Duration = Duration::from_secs(30);

const KEY_USAGES: [&str; 9] = [
    "digital_signature",
    "non_repudiation",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
];

/// Extended key usages by name, below id-kp (RFC 5280 section 4.2.1.12).
const PURPOSES: [(&str, &str); 5] = [
    ("server_auth", "1.3.6.1.5.5.7.3.1"),
    ("client_auth", "1.3.6.1.5.5.7.3.2"),
    ("code_signing", "1.3.6.1.5.5.7.3.3"),
    ("email_protection", "1.3.6.1.5.5.7.3.4"),
    ("timestamping", "1.3.6.1.5.5.7.3.8"),
];

const NO_SUBJECT: &str = "At least one subject value, such as common name or organization, must be defined to generate \
                          the certificate. Please update and retry your request.";
const NO_SIGNER: &str = "You must specify a signing CA or indicate self-signing when generating a certificate. Please \
                         update and retry your request.";
const TWO_SIGNERS: &str = "The parameters 'ca' and 'self-sign' cannot be used in combination. Please update and retry your request.";
const BAD_NAME: &str = "A provided alternative name is not a valid hostname or IP address. Please update this value and retry your request.";
const BAD_DURATION: &str =
    "Invalid duration specified. The supported duration values are whole numbers between 1-3650.";

/// Parameters for generating a certificate.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateParameters {
    /// Common name of the subject. At most 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_name: Option<String>,
    /// Organization of the subject. At most 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Organizational unit of the subject. At most 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization_unit: Option<String>,
    /// Locality of the subject. At most 128 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// State or province of the subject. At most 128 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Country code of the subject. Two letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    /// Host names and IP addresses.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub alternative_names: Vec<String>,
    /// Key usages, such as `digital_signature`.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub key_usage: Vec<String>,
    /// Extended key usages, such as `server_auth`.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub extended_key_usage: Vec<String>,
    /// RSA key length in bits.
    pub key_length: u32,
    /// Key type other than RSA: `p256`, `p384`, `p521`, `ed25519`. An extension to CredHub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_type: Option<KeyType>,
    /// Validity in days.
    pub duration: u32,
    /// Name of the CA credential that signs the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Whether a CA whose certificate has expired may sign the certificate. An extension to CredHub.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_expired_ca: bool,
    /// Whether the certificate is self-signed.
    pub self_sign: bool,
    /// Whether the certificate is a CA certificate.
    pub is_ca: bool,
}

impl Default for CertificateParameters {
    fn default() -> Self {
        Self {
            common_name: None,
            organization: None,
            organization_unit: None,
            locality: None,
            state: None,
            country: None,
            alternative_names: Vec::new(),
            key_usage: Vec::new(),
            extended_key_usage: Vec::new(),
            key_length: 2_048,
            key_type: None,
            duration: DURATION,
            ca: None,
            allow_expired_ca: false,
            self_sign: false,
            is_ca: false,
        }
    }
}

/// Deserializes a list; `null` is an empty list.
fn or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Option::<Vec<String>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The CA that signs a certificate, with its key.
pub(crate) struct SigningCa {
    pub(crate) certificate: Certificate,
    pub(crate) pem: String,
    pub(crate) key: PrivateKey,
    /// Certificate of the CA's other version, in PEM.
    pub(crate) trusted: Option<String>,
    /// The published CA and its revocation URLs. `None` if the CA is not published, so that its certificates cannot be revoked.
    pub(crate) published: Option<Published>,
}

/// A published CA, and the revocation URLs in its certificates.
pub(crate) struct Published {
    pub(crate) ca: Arc<Ca>,
    pub(crate) extensions: [Extension; 2],
}

/// A newly generated certificate.
pub(crate) struct NewCertificate {
    pub(crate) value: CertificateValue,
    pub(crate) certificate: Certificate,
    pub(crate) facts: Facts,
}

impl CertificateParameters {
    fn subject(&self) -> [(&'static str, usize, Attribute, Option<&String>); 6] {
        [
            ("country", 2, Attribute::Country, non_empty(&self.country)),
            ("state", 128, Attribute::State, non_empty(&self.state)),
            ("locality", 128, Attribute::Locality, non_empty(&self.locality)),
            ("organization", 64, Attribute::Organization, non_empty(&self.organization)),
            ("organization unit", 64, Attribute::OrganizationalUnit, non_empty(&self.organization_unit)),
            ("common name", 64, Attribute::CommonName, non_empty(&self.common_name)),
        ]
    }

    /// Checks the parameters, with the same errors and in the same order as CredHub.
    pub(crate) fn checked(mut self) -> Result<Self, CredentialError> {
        let bad = |text: &str| Err(CredentialError::bad(text));
        self.ca = self.ca.filter(|ca| !ca.is_empty());
        if self.subject().iter().all(|(.., value)| value.is_none()) {
            return bad(NO_SUBJECT);
        }
        if self.ca.is_none() && !self.self_sign && !self.is_ca {
            return bad(NO_SIGNER);
        }
        if self.ca.is_some() && self.self_sign {
            return bad(TWO_SIGNERS);
        }
        self.self_sign = self.ca.is_none();
        rsa_kind(self.key_length)?;
        if self.alternative_names.len() > NAMES_MAX {
            return Err(CredentialError::bad(format!(
                "A certificate can have at most {NAMES_MAX} alternative names."
            )));
        }
        self.names()?;
        self.purposes()?;
        self.usage()?;
        if !(1..=DURATION_MAX).contains(&self.duration) {
            return bad(BAD_DURATION);
        }
        for (what, most, _, value) in self.subject() {
            check_length(what, most, value)?;
        }
        for name in &self.alternative_names {
            check_length("alternative name", 253, Some(name))?;
        }
        Ok(self)
    }

    fn names(&self) -> Result<Vec<GeneralName>, CredentialError> {
        let read = |text: &String| match GeneralName::parse(text) {
            Ok(name @ (GeneralName::Dns(_) | GeneralName::Ip(_))) => Ok(name),
            _ => Err(CredentialError::bad(BAD_NAME)),
        };
        self.alternative_names.iter().map(read).collect()
    }

    fn purposes(&self) -> Result<Vec<String>, CredentialError> {
        let read = |text: &String| {
            let found = PURPOSES.iter().find(|(name, _)| name == text).map(|(_, oid)| (*oid).to_owned());
            found.ok_or_else(|| {
                CredentialError::bad(format!(
                    "The provided extended key usage '{text}' is not supported. Valid values include 'client_auth', \
                     'server_auth', 'code_signing', 'email_protection' and 'timestamping'."
                ))
            })
        };
        self.extended_key_usage.iter().map(read).collect()
    }

    fn usage(&self) -> Result<u16, CredentialError> {
        self.key_usage.iter().try_fold(0, |bits, text| {
            let bit = KEY_USAGES.iter().position(|name| name == text);
            let bit = bit.ok_or_else(|| {
                CredentialError::bad(format!(
                    "The provided key usage '{text}' is not supported. Valid values include 'digital_signature', \
                     'non_repudiation', 'key_encipherment', 'data_encipherment', 'key_agreement', 'key_cert_sign', \
                     'crl_sign', 'encipher_only' and 'decipher_only'."
                ))
            })?;
            Ok(bits | 1 << bit)
        })
    }

    /// Returns the type of the certificate's key.
    pub(crate) fn key_kind(&self) -> Result<KeyType, CredentialError> {
        self.key_type.map_or_else(|| rsa_kind(self.key_length), Ok)
    }

    /// Returns the parameters that would generate a certificate like the given one.
    pub(crate) fn of(certificate: &Certificate, ca: Option<String>) -> Self {
        let attributes = certificate.subject.attributes();
        let first = |wanted: Attribute| {
            attributes.iter().find(|(attribute, _)| *attribute == wanted).map(|(_, value)| value.clone())
        };
        let usage = certificate.key_usage.map_or(0, |usage| usage.0);
        let purposes = certificate.extended_key_usage.clone().unwrap_or_default();
        let kind = KeyType::of(&certificate.public_key);
        let days = certificate.not_after.since(certificate.not_before) / DAY_SECONDS;
        Self {
            common_name: first(Attribute::CommonName),
            organization: first(Attribute::Organization),
            organization_unit: first(Attribute::OrganizationalUnit),
            locality: first(Attribute::Locality),
            state: first(Attribute::State),
            country: first(Attribute::Country),
            alternative_names: certificate.subject_alt_names.iter().map(ToString::to_string).collect(),
            key_usage: KEY_USAGES
                .iter()
                .enumerate()
                .filter(|(bit, _)| usage & (1 << bit) != 0)
                .map(|(_, name)| (*name).to_owned())
                .collect(),
            extended_key_usage: PURPOSES
                .iter()
                .filter(|(_, oid)| purposes.iter().any(|purpose| purpose == oid))
                .map(|(name, _)| (*name).to_owned())
                .collect(),
            key_length: kind.and_then(KeyType::rsa_bits).unwrap_or(2_048),
            key_type: kind.filter(|kind| kind.rsa_bits().is_none()),
            duration: u32::try_from(days).unwrap_or(DURATION).clamp(1, DURATION_MAX),
            self_sign: ca.is_none(),
            allow_expired_ca: false,
            ca,
            is_ca: crate::value::is_ca_certificate(certificate),
        }
    }

    /// Generates the certificate for `key`, signed by `ca` or self-signed.
    pub(crate) async fn make(
        &self,
        key: &PrivateKey,
        ca: Option<&SigningCa>,
        now: UnixTime,
        options: &CredentialsOptions,
    ) -> Result<NewCertificate, CredentialError> {
        let least = if self.is_ca { options.ca_minimum_days } else { options.leaf_minimum_days };
        let days = self.duration.max(least);
        let internal = |what: &str| CredentialError::Internal(what.to_owned());
        let attributes: Vec<(Attribute, String)> = self
            .subject()
            .into_iter()
            .filter_map(|(_, _, attribute, value)| Some((attribute, value?.clone())))
            .collect();
        let subject = build::distinguished_name(&attributes);
        let signer = ca.map_or(key, |ca| &ca.key);
        let issuer = ca.map_or(&*subject.der, |ca| &*ca.certificate.subject.der);
        let mut random = [0; 16];
        rand::fill(&mut random).map_err(|_| internal("no randomness"))?;
        let spec = CertificateSpec {
            serial: &SerialNumber::from_random(random),
            signature: signer.algorithm(),
            issuer,
            subject: &subject.der,
            not_before: now,
            not_after: now.plus(i64::from(days) * DAY_SECONDS),
            spki: key.spki(),
            extensions: &self.extensions(key, ca)?,
        };
        let tbs = build::tbs_certificate(&spec);
        let signature = signer.sign(&tbs, Instant::now() + SIGN_TIMEOUT).await?;
        let der = build::signed(&tbs, &signer.algorithm(), &signature);
        let certificate = Certificate::parse(&der).map_err(|error| internal(&error.to_string()))?;
        let pem = x509::pem::encode("CERTIFICATE", &der);
        let value = CertificateValue {
            ca: Some(ca.map_or_else(|| pem.clone(), |ca| ca.pem.clone())),
            trusted_ca: ca.and_then(|ca| ca.trusted.clone()),
            certificate: Some(pem),
            private_key: Some(key.to_traditional_pem().into()),
        };
        let facts = Facts {
            certificate_authority: self.is_ca,
            self_signed: ca.is_none(),
            generated: true,
            minimum_days: (days > self.duration).then_some(days),
        };
        Ok(NewCertificate { value, certificate, facts })
    }

    fn extensions(
        &self,
        key: &PrivateKey,
        ca: Option<&SigningCa>,
    ) -> Result<Vec<Extension>, CredentialError> {
        let own_id = build::key_id(key.spki()).to_vec();
        let issuer_id = match ca {
            Some(ca) => ca
                .certificate
                .subject_key_id
                .clone()
                .unwrap_or_else(|| build::key_id(&ca.certificate.public_key.spki).to_vec()),
            None => own_id.clone(),
        };
        let mut all = Vec::with_capacity(8);
        if !self.alternative_names.is_empty() {
            all.push(Extension::subject_alt_names(&self.names()?));
        }
        let usage = match self.usage()? {
            // RFC 5280 section 4.2.1.3 requires a key usage in CA certificates. CredHub leaves the key usage out, and strict
            // clients reject such certificates.
            0 if self.is_ca => KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN,
            requested => requested,
        };
        if usage != 0 {
            all.push(Extension::key_usage(KeyUsage(usage)));
        }
        if !self.extended_key_usage.is_empty() {
            all.push(Extension::extended_key_usage(&self.purposes()?));
        }
        all.push(Extension::basic_constraints(BasicConstraints { ca: self.is_ca, path_len: None }));
        all.push(Extension::subject_key_id(&own_id));
        all.push(Extension::authority_key_id(&issuer_id));
        let published = ca.and_then(|ca| ca.published.as_ref());
        all.extend(published.iter().flat_map(|published| published.extensions.iter().cloned()));
        Ok(all)
    }
}

fn non_empty(value: &Option<String>) -> Option<&String> {
    value.as_ref().filter(|value| !value.is_empty())
}

fn check_length(what: &str, most: usize, value: Option<&String>) -> Result<(), CredentialError> {
    if value.is_some_and(|value| value.chars().count() > most) {
        return Err(CredentialError::bad(format!(
            "The request could not be completed because the {what} is too long. The max length for {what} is {most} \
             characters."
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(with: impl FnOnce(&mut CertificateParameters)) -> Result<CertificateParameters, String> {
        let mut parameters = CertificateParameters {
            common_name: Some("a".to_owned()),
            self_sign: true,
            ..Default::default()
        };
        with(&mut parameters);
        parameters.checked().map_err(|error| error.to_string())
    }

    #[test]
    fn invalid_certificate_parameters_are_rejected_with_credhub_messages() {
        assert!(named(|_| {}).unwrap().self_sign);
        assert!(named(|p| (p.self_sign, p.is_ca) = (false, true)).unwrap().self_sign);
        let cases: [(fn(&mut CertificateParameters), &str); 8] = [
            (|p| p.common_name = None, NO_SUBJECT),
            (|p| p.self_sign = false, NO_SIGNER),
            (|p| p.ca = Some("/ca".to_owned()), TWO_SIGNERS),
            (|p| p.key_length = 1_024, super::super::rsa::BAD_KEY_LENGTH),
            (|p| p.alternative_names = vec!["a b".to_owned()], BAD_NAME),
            (|p| p.duration = 3_651, BAD_DURATION),
            (|p| p.duration = 0, BAD_DURATION),
            (
                |p| p.country = Some("DEU".to_owned()),
                "The request could not be completed because the country is too long. The max length for country is 2 \
                 characters.",
            ),
        ];
        for (number, (change, why)) in cases.into_iter().enumerate() {
            assert_eq!(named(change).unwrap_err(), why, "case {number}");
        }
        assert!(
            named(|p| p.key_usage = vec!["x".to_owned()])
                .unwrap_err()
                .starts_with("The provided key usage 'x'")
        );
        assert!(
            named(|p| p.extended_key_usage = vec!["x".to_owned()])
                .unwrap_err()
                .starts_with("The provided extended key usage 'x'")
        );
    }

    #[tokio::test]
    async fn certificate_parameters_are_recovered_from_the_certificate() {
        let requested = named(|p| {
            p.organization = Some("O".to_owned());
            p.alternative_names = vec!["a.example".to_owned(), "10.0.0.1".to_owned()];
            p.key_usage = vec!["digital_signature".to_owned(), "crl_sign".to_owned()];
            p.extended_key_usage = vec!["client_auth".to_owned()];
            p.key_type = Some(KeyType::P256);
            p.is_ca = true;
            p.duration = 90;
        })
        .unwrap();
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let made = requested
            .make(&key, None, UnixTime(1_700_000_000), &CredentialsOptions::default())
            .await
            .unwrap();
        assert_eq!(CertificateParameters::of(&made.certificate, None), requested);
        assert!(made.certificate.signed_by(&made.certificate.public_key).is_ok());
        assert_eq!(made.value.ca, made.value.certificate);
    }
}
