//! Certificate profiles.

use serde::Serialize;

/// A certificate profile. Every absent field has a default.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ProfileDocument {
    /// Name of the profile: letters, digits, `-`, `_` and `.`.
    #[cfg_attr(
        feature = "schemas",
        schema(example = "web", pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")
    )]
    pub name: String,
    /// Human-readable description.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub description: String,
    /// Name of the CA that issues the certificates; the default CA when absent.
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub ca: Option<String>,
    /// Allowed key types: `rsa2048`, `rsa3072`, `rsa4096`, `p256`, `p384`, `p521`, `ed25519`, `ml-dsa-44`, `ml-dsa-65`,
    /// `ml-dsa-87`.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub key_types: Vec<KeyTypeName>,
    /// Minimum size in bits of RSA keys. When present, RSA keys of any size from this minimum to 8,192 bits are allowed in addition
    /// to `key_types`.
    #[cfg_attr(feature = "schemas", schema(minimum = 2048, maximum = 8192, nullable = false))]
    pub rsa_bits_min: Option<u32>,
    /// Default and maximum lifetime of certificates, and backdating.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub validity: ValidityDocument,
    /// Rules for the names in certificates.
    pub names: NamesDocument,
    /// Rules for the subject.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub subject: SubjectDocument,
    /// Key usage extension; determined by the key type when absent.
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub key_usage: Option<Vec<KeyUsageDocument>>,
    /// Extended key usage extension: names of RFC 5280 (`serverAuth`, `clientAuth`, …) or dotted OIDs.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub extended_key_usage: Vec<String>,
    /// Certificate policies, as dotted OIDs.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub policies: Vec<String>,
    /// Whether certificates contain the must-staple extension (RFC 7633).
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub must_staple: StaplingDocument,
    /// URLs that certificates contain.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub urls: UrlsDocument,
    /// Extensions that a CSR may contain, as dotted OIDs.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub requested_extensions: Vec<String>,
    /// Predefined set of rules that applies in addition to this profile.
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub preset: Option<PresetDocument>,
    /// Whether issuance requires the approval of a second person.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub requires_approval: bool,
    /// Number of people who must approve, if approval is required: 1 to 16. The requester and the person who last changed the plan
    /// do not count.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 1, maximum = 16))]
    pub approvals: u32,
    /// Share of the lifetime after which a certificate is renewed, between 0 and 1.
    #[cfg_attr(feature = "schemas", schema(required = false, example = 0.67))]
    pub renew_at: f64,
}

/// A certificate profile with its database metadata.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ProfileView {
    /// The profile. Its members are members of this object.
    #[serde(flatten)]
    pub profile: ProfileDocument,
    /// Revision, from 1. Every change increases it. It is also the ETag.
    pub revision: i64,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// Algorithm and size of a key.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum KeyTypeName {
    /// RSA, 2,048 bits.
    Rsa2048,
    /// RSA, 3,072 bits.
    Rsa3072,
    /// RSA, 4,096 bits.
    Rsa4096,
    /// ECDSA over P-256.
    P256,
    /// ECDSA over P-384.
    P384,
    /// ECDSA over P-521.
    P521,
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// ML-DSA-44 (FIPS 204).
    #[serde(rename = "ml-dsa-44")]
    MlDsa44,
    /// ML-DSA-65 (FIPS 204).
    #[serde(rename = "ml-dsa-65")]
    MlDsa65,
    /// ML-DSA-87 (FIPS 204).
    #[serde(rename = "ml-dsa-87")]
    MlDsa87,
}

/// Lifetime of certificates, in seconds.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ValidityDocument {
    /// Lifetime if the request contains none.
    #[cfg_attr(feature = "schemas", schema(minimum = 60, example = 4060800))]
    pub default_seconds: i64,
    /// Maximum lifetime; the default lifetime when absent.
    #[cfg_attr(feature = "schemas", schema(minimum = 60, nullable = false))]
    pub max_seconds: Option<i64>,
    /// Seconds by which the start of validity precedes the current time, for clients whose clocks are slow.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0))]
    pub backdate_seconds: i64,
}

/// The names that certificates of a profile may contain. A kind of name without a rule is not allowed.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NamesDocument {
    /// Allowed DNS names.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub dns_allowed: Vec<DnsRuleDocument>,
    /// Denied DNS names. They take precedence over `dns_allowed`.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub dns_denied: Vec<DnsRuleDocument>,
    /// Allowed IP addresses, as prefixes.
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["10.0.0.0/8"])))]
    pub ip_allowed: Vec<String>,
    /// Denied IP addresses, as prefixes. They take precedence over `ip_allowed`.
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["10.9.0.0/16"])))]
    pub ip_denied: Vec<String>,
    /// Allowed URIs, by prefix. A SPIFFE trust domain is such a prefix.
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["spiffe://trust.example"])))]
    pub uri_allowed: Vec<String>,
    /// Allowed email addresses: one address, all addresses of a host (`a.example`), or all addresses of its subdomains
    /// (`.a.example`).
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["a.example"])))]
    pub email_allowed: Vec<String>,
    /// Whether a certificate must have at least one name.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub required: bool,
    /// Maximum number of names in one certificate.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 1, maximum = 1000))]
    pub max: u32,
}

/// A rule for DNS names: one name (`www.a.example`, `*.a.example`), all names below a name (`.a.example`), or a suffix with
/// conditions.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum DnsRuleDocument {
    /// A name, or a suffix with a leading dot, as a string.
    Text(String),
    /// A suffix with conditions, as a table.
    Suffix(SuffixDocument),
}

/// A DNS name and its subdomains.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SuffixDocument {
    /// The suffix; `.` for the DNS root.
    #[cfg_attr(feature = "schemas", schema(example = "a.example"))]
    pub suffix: String,
    /// Whether the rule matches the suffix itself.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub itself: bool,
    /// Maximum number of labels before the suffix; unlimited when absent.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0, maximum = 255))]
    pub depth_max: u8,
    /// Whether the rule matches wildcard names.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub wildcards: bool,
    /// Minimum number of labels before the suffix in a wildcard name, including the `*`.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0, maximum = 255))]
    pub wildcard_depth_min: u8,
    /// Maximum number of labels before the suffix in a wildcard name, including the `*`.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0, maximum = 255))]
    pub wildcard_depth_max: u8,
}

/// Rules for the subject of certificates: the common name, fixed attributes, and use of the requested subject.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SubjectDocument {
    /// Source of the common name.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub common_name: CommonNameDocument,
    /// Subject attributes that every certificate contains.
    #[cfg_attr(feature = "schemas", schema(nullable = false, example = "O=Example, C=DE"))]
    pub fixed: Option<String>,
    /// Whether the subject of the request is used.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub requested: bool,
    /// Whether the subject may have an organizational unit `app:…`, by which the credential store identifies applications.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub application_identities: bool,
}

/// Source of the common name in the subject of a certificate.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CommonNameDocument {
    /// No common name.
    None,
    /// The requested common name if it is one of the names, otherwise the first suitable name.
    FirstName,
    /// The requested common name if it is one of the names, otherwise none.
    Requested,
    /// The requested common name, without restrictions.
    Any,
}

/// A bit of the key usage extension.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum KeyUsageDocument {
    /// Verification of digital signatures on data.
    DigitalSignature,
    /// Verification of signatures that commit to content (formerly non-repudiation).
    ContentCommitment,
    /// Encryption of keys.
    KeyEncipherment,
    /// Encryption of data.
    DataEncipherment,
    /// Key agreement.
    KeyAgreement,
    /// Key agreement for encryption only.
    EncipherOnly,
    /// Key agreement for decryption only.
    DecipherOnly,
}

/// Presence of the must-staple extension (RFC 7633) in certificates.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StaplingDocument {
    /// The extension is never present.
    Never,
    /// The extension is present if the CSR contains it.
    OnRequest,
    /// The extension is always present.
    Always,
}

/// The URLs that a certificate contains.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UrlsDocument {
    /// Whether the certificate contains the URL of the CRL.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub crl: bool,
    /// Whether the certificate contains the URL of the OCSP responder.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub ocsp: bool,
    /// Whether the certificate contains the URL of the issuer's certificate.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub issuer: bool,
}

/// A predefined set of rules for the certificates of a profile.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PresetDocument {
    /// The Baseline Requirements of the CA/Browser Forum for TLS server certificates, in the version in force on the day of issue.
    BaselineTls,
}
