//! Certificate profiles.

use serde::Serialize;

/// What may be issued under one name. Whatever is left out has a default.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ProfileDocument {
    /// Its name: letters, digits, `-`, `_` and `.`.
    #[cfg_attr(
        feature = "schemas",
        schema(example = "web", pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")
    )]
    pub name: String,
    /// For people.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub description: String,
    /// The name of the CA that issues; the default one unless given.
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub ca: Option<String>,
    /// Kinds of keys that are certified: `rsa2048`, `rsa3072`, `rsa4096`, `p256`, `p384`, `p521`, `ed25519`, `ml-dsa-44`,
    /// `ml-dsa-65`, `ml-dsa-87`.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub key_types: Vec<KeyTypeName>,
    /// RSA keys of any size from this many bits to 8,192 are certified, too.
    #[cfg_attr(feature = "schemas", schema(minimum = 2048, maximum = 8192, nullable = false))]
    pub rsa_bits_min: Option<u32>,
    /// How long certificates live.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub validity: ValidityDocument,
    /// Which names they may have.
    pub names: NamesDocument,
    /// The subject.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub subject: SubjectDocument,
    /// The key usage extension; by kind of key unless given.
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub key_usage: Option<Vec<KeyUsageDocument>>,
    /// The extended key usage extension: names of RFC 5280 (`serverAuth`, `clientAuth`, …) or dotted identifiers.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub extended_key_usage: Vec<String>,
    /// Certificate policies, dotted.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub policies: Vec<String>,
    /// Whether the server must staple OCSP responses (RFC 7633).
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub must_staple: StaplingDocument,
    /// Which addresses a certificate names.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub urls: UrlsDocument,
    /// Extensions a request may bring along, dotted.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub requested_extensions: Vec<String>,
    /// A whole set of rules to hold to beside the ones here.
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub preset: Option<PresetDocument>,
    /// Whether a second person must agree.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub requires_approval: bool,
    /// How many people must approve, where approval is required: 1 to 16. The person who asks and the person who changed the plan
    /// last never count.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 1, maximum = 16))]
    pub approvals: u32,
    /// The part of its life after which a certificate is renewed, between 0 and 1.
    #[cfg_attr(feature = "schemas", schema(required = false, example = 0.67))]
    pub renew_at: f64,
}

/// A profile with what the database knows of it.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ProfileView {
    /// The profile.
    #[serde(flatten)]
    pub profile: ProfileDocument,
    /// Moved by every change, from 1; its ETag.
    pub revision: i64,
    /// Creation time.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
}

/// A kind of key.
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
    /// Ed25519.
    Ed25519,
    /// ML-DSA-44.
    #[serde(rename = "ml-dsa-44")]
    MlDsa44,
    /// ML-DSA-65.
    #[serde(rename = "ml-dsa-65")]
    MlDsa65,
    /// ML-DSA-87.
    #[serde(rename = "ml-dsa-87")]
    MlDsa87,
}

/// How long certificates live, in seconds.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ValidityDocument {
    /// The validity if the request names none.
    #[cfg_attr(feature = "schemas", schema(minimum = 60, example = 4060800))]
    pub default_seconds: i64,
    /// At most; the default's unless given.
    #[cfg_attr(feature = "schemas", schema(minimum = 60, nullable = false))]
    pub max_seconds: Option<i64>,
    /// How far before now a certificate begins, for clocks that are behind.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0))]
    pub backdate_seconds: i64,
}

/// The names allowed; a kind of name without a rule is not allowed at all.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NamesDocument {
    /// DNS names allowed.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub dns_allowed: Vec<DnsRuleDocument>,
    /// DNS names refused, whatever else allows them.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub dns_denied: Vec<DnsRuleDocument>,
    /// Addresses allowed, as prefixes.
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["10.0.0.0/8"])))]
    pub ip_allowed: Vec<String>,
    /// Addresses refused.
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["10.9.0.0/16"])))]
    pub ip_denied: Vec<String>,
    /// URIs allowed, by prefix; a SPIFFE trust domain is one.
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["spiffe://trust.example"])))]
    pub uri_allowed: Vec<String>,
    /// Mailboxes allowed: one, those of a host, or, with a leading dot, of the hosts below.
    #[cfg_attr(feature = "schemas", schema(required = false, example = json!(["a.example"])))]
    pub email_allowed: Vec<String>,
    /// Whether a certificate must have at least one name.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub required: bool,
    /// Most names in one certificate.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 1, maximum = 1000))]
    pub max: u32,
}

/// A name (`www.a.example`, `*.a.example`), all names below one (`.a.example`), or a suffix with its conditions.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum DnsRuleDocument {
    /// As text.
    Text(String),
    /// As a table.
    Suffix(SuffixDocument),
}

/// A DNS name and its subdomains.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SuffixDocument {
    /// The name; `.` for the root.
    #[cfg_attr(feature = "schemas", schema(example = "a.example"))]
    pub suffix: String,
    /// Whether the name itself is meant.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub itself: bool,
    /// How many labels below are meant; any number unless given.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0, maximum = 255))]
    pub depth_max: u8,
    /// Whether wildcards are meant.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub wildcards: bool,
    /// The least number of labels a wildcard adds to the suffix, its star counted.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0, maximum = 255))]
    pub wildcard_depth_min: u8,
    /// The greatest number of labels a wildcard adds to the suffix, its star counted.
    #[cfg_attr(feature = "schemas", schema(required = false, minimum = 0, maximum = 255))]
    pub wildcard_depth_max: u8,
}

/// The subject.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SubjectDocument {
    /// Where the common name comes from.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub common_name: CommonNameDocument,
    /// Attributes every certificate has.
    #[cfg_attr(feature = "schemas", schema(nullable = false, example = "O=Example, C=DE"))]
    pub fixed: Option<String>,
    /// Whether the subject of the request is taken over.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub requested: bool,
    /// Whether the subject may have an organizational unit `app:…`, by which the credential store knows applications.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub application_identities: bool,
}

/// Where the common name comes from.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CommonNameDocument {
    /// No common name.
    None,
    /// The requested one if it is one of the names, otherwise the first name that fits.
    FirstName,
    /// The requested one if it is one of the names, otherwise none.
    Requested,
    /// Whatever is requested.
    Any,
}

/// A bit of the key usage extension.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum KeyUsageDocument {
    /// Signatures over data.
    DigitalSignature,
    /// Signatures that commit to content.
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

/// Whether the must-staple extension is there.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StaplingDocument {
    /// Never.
    Never,
    /// If the request contains it.
    OnRequest,
    /// Always.
    Always,
}

/// Which addresses a certificate names.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UrlsDocument {
    /// The CRL.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub crl: bool,
    /// The OCSP responder.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub ocsp: bool,
    /// The issuer's certificate.
    #[cfg_attr(feature = "schemas", schema(required = false))]
    pub issuer: bool,
}

/// A set of rules by name.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PresetDocument {
    /// The CA/Browser Forum's Baseline Requirements for TLS server certificates, as in force on the day.
    BaselineTls,
}
