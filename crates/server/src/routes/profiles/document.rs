//! What a profile looks like, for the API's description: the room `authority` reads and writes it.

#![allow(dead_code, reason = "the fields exist for the OpenAPI schema only")]

use serde::Serialize;
use utoipa::ToSchema;

/// What may be issued under one name. Whatever is left out has a default.
#[derive(Serialize, ToSchema)]
pub(super) struct ProfileDocument {
    /// Its name: letters, digits, `-`, `_` and `.`.
    #[schema(example = "web", pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    name: String,
    /// For people.
    #[schema(required = false)]
    description: String,
    /// The name of the CA that issues; the default one unless given.
    #[schema(nullable = false)]
    ca: Option<String>,
    /// Kinds of keys that are certified: `rsa2048`, `rsa3072`, `rsa4096`, `p256`, `p384`, `p521`, `ed25519`, `ml-dsa-44`,
    /// `ml-dsa-65`, `ml-dsa-87`.
    #[schema(required = false)]
    key_types: Vec<KeyTypeName>,
    /// RSA keys of any size from this many bits to 8,192 are certified, too.
    #[schema(minimum = 2048, maximum = 8192, nullable = false)]
    rsa_bits_min: Option<u32>,
    /// How long certificates live.
    #[schema(required = false)]
    validity: ValidityDocument,
    /// Which names they may have.
    names: NamesDocument,
    /// What the subject says.
    #[schema(required = false)]
    subject: SubjectDocument,
    /// The key usage extension; by kind of key unless given.
    #[schema(nullable = false)]
    key_usage: Option<Vec<KeyUsageDocument>>,
    /// The extended key usage extension: names of RFC 5280 (`serverAuth`, `clientAuth`, …) or dotted identifiers.
    #[schema(required = false)]
    extended_key_usage: Vec<String>,
    /// Certificate policies, dotted.
    #[schema(required = false)]
    policies: Vec<String>,
    /// Whether the server must staple OCSP responses (RFC 7633).
    #[schema(required = false)]
    must_staple: StaplingDocument,
    /// Which addresses a certificate names.
    #[schema(required = false)]
    urls: UrlsDocument,
    /// Extensions a request may bring along, dotted.
    #[schema(required = false)]
    requested_extensions: Vec<String>,
    /// A whole set of rules to hold to beside the ones here.
    #[schema(nullable = false)]
    preset: Option<PresetDocument>,
    /// Whether a second person must agree.
    #[schema(required = false)]
    requires_approval: bool,
    /// The part of its life after which a certificate is renewed, between 0 and 1.
    #[schema(required = false, example = 0.67)]
    renew_at: f64,
}

/// A profile with what the database knows of it.
#[derive(Serialize, ToSchema)]
pub(super) struct ProfileView {
    #[serde(flatten)]
    profile: ProfileDocument,
    /// Moved by every change, from 1; its ETag.
    revision: i64,
    /// When it was made.
    created_at: String,
    /// When it was last changed.
    updated_at: String,
}

/// A kind of key.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum KeyTypeName {
    Rsa2048,
    Rsa3072,
    Rsa4096,
    P256,
    P384,
    P521,
    Ed25519,
    #[serde(rename = "ml-dsa-44")]
    MlDsa44,
    #[serde(rename = "ml-dsa-65")]
    MlDsa65,
    #[serde(rename = "ml-dsa-87")]
    MlDsa87,
}

/// How long certificates live, in seconds.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ValidityDocument {
    /// When nothing else is asked.
    #[schema(minimum = 60, example = 4060800)]
    default_seconds: i64,
    /// At most; the default's unless given.
    #[schema(minimum = 60, nullable = false)]
    max_seconds: Option<i64>,
    /// How far before now a certificate begins, for clocks that are behind.
    #[schema(required = false, minimum = 0)]
    backdate_seconds: i64,
}

/// The names allowed; a kind of name without a rule is not allowed at all.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NamesDocument {
    /// DNS names allowed.
    #[schema(required = false)]
    dns_allowed: Vec<DnsRuleDocument>,
    /// DNS names refused, whatever else allows them.
    #[schema(required = false)]
    dns_denied: Vec<DnsRuleDocument>,
    /// Addresses allowed, as prefixes.
    #[schema(required = false, example = json!(["10.0.0.0/8"]))]
    ip_allowed: Vec<String>,
    /// Addresses refused.
    #[schema(required = false, example = json!(["10.9.0.0/16"]))]
    ip_denied: Vec<String>,
    /// URIs allowed, by prefix; a SPIFFE trust domain is one.
    #[schema(required = false, example = json!(["spiffe://trust.example"]))]
    uri_allowed: Vec<String>,
    /// Mailboxes allowed: one, those of a host, or, with a leading dot, of the hosts below.
    #[schema(required = false, example = json!(["a.example"]))]
    email_allowed: Vec<String>,
    /// Whether a certificate must have at least one name.
    #[schema(required = false)]
    required: bool,
    /// Most names in one certificate.
    #[schema(required = false, minimum = 1, maximum = 1000)]
    max: u32,
}

/// A name (`www.a.example`, `*.a.example`), all names below one (`.a.example`), or a suffix with its conditions.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum DnsRuleDocument {
    /// As text.
    Text(String),
    /// As a table.
    Suffix(SuffixDocument),
}

/// A DNS name and what lies below it.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SuffixDocument {
    /// The name; `.` for the root.
    #[schema(example = "a.example")]
    suffix: String,
    /// Whether the name itself is meant.
    #[schema(required = false)]
    itself: bool,
    /// How many labels below are meant; any number unless given.
    #[schema(required = false, minimum = 0, maximum = 255)]
    depth_max: u8,
    /// Whether wildcards are meant.
    #[schema(required = false)]
    wildcards: bool,
    /// The least number of labels a wildcard adds to the suffix, its star counted.
    #[schema(required = false, minimum = 0, maximum = 255)]
    wildcard_depth_min: u8,
    /// The greatest number of labels a wildcard adds to the suffix, its star counted.
    #[schema(required = false, minimum = 0, maximum = 255)]
    wildcard_depth_max: u8,
}

/// What the subject says.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SubjectDocument {
    /// Where the common name comes from.
    #[schema(required = false)]
    common_name: CommonNameDocument,
    /// Attributes every certificate has.
    #[schema(nullable = false, example = "O=Example, C=DE")]
    fixed: Option<String>,
    /// Whether the subject of the request is taken over.
    #[schema(required = false)]
    requested: bool,
}

/// Where the common name comes from.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum CommonNameDocument {
    None,
    FirstName,
    Requested,
    Any,
}

/// A bit of the key usage extension.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum KeyUsageDocument {
    DigitalSignature,
    ContentCommitment,
    KeyEncipherment,
    DataEncipherment,
    KeyAgreement,
    EncipherOnly,
    DecipherOnly,
}

/// Whether the must-staple extension is there.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum StaplingDocument {
    Never,
    OnRequest,
    Always,
}

/// Which addresses a certificate names.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct UrlsDocument {
    /// The CRL.
    #[schema(required = false)]
    crl: bool,
    /// The OCSP responder.
    #[schema(required = false)]
    ocsp: bool,
    /// The issuer's certificate.
    #[schema(required = false)]
    issuer: bool,
}

/// A set of rules by name.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum PresetDocument {
    /// The CA/Browser Forum's Baseline Requirements for TLS server certificates, as in force on the day.
    BaselineTls,
}
