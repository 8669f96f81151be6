//! Forms for objects that are JSON documents: which members they have fields for.

use crate::member_fields::MemberField;

/// A form for the documents of one type, such as ACME issuers.
pub(crate) struct DocumentForm {
    /// Value of the parameter `form`. For objects with types, the name of the type.
    pub(crate) name: &'static str,
    /// Label and explanation in the list of types.
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    /// The new document before its fields are filled in: members without a field, and default values.
    pub(crate) base: &'static str,
    /// Paths of members that the API shows and does not accept, such as the host of a secret URL.
    pub(crate) read_only: &'static [&'static str],
    pub(crate) fields: &'static [MemberField],
}

const KEY_TYPES: &[&str] = &[
    "p256",
    "p384",
    "p521",
    "ed25519",
    "rsa2048",
    "rsa3072",
    "rsa4096",
    "ml-dsa-44",
    "ml-dsa-65",
    "ml-dsa-87",
];

const NAME: MemberField = MemberField::text("name", "Name").required();
const DESCRIPTION: MemberField = MemberField::text("description", "Description");

pub(crate) const PROFILE: &[DocumentForm] = &[DocumentForm {
    name: "profile",
    label: "Profile",
    hint: "",
    base: r#"{"key_types": ["p256"], "validity": {"default_seconds": 2592000}, "extended_key_usage": ["serverAuth"]}"#,
    read_only: &[],
    fields: &[
        NAME,
        DESCRIPTION,
        MemberField::text("ca", "CA").hint("Name of the issuing CA. Empty: the default CA."),
        MemberField::days("validity/default_seconds", "Valid for days").required(),
        MemberField::days("validity/max_seconds", "At most days").hint("Requests may ask for this validity. Empty: the same."),
        MemberField::rules("names/dns_allowed", "DNS names allowed").hint(
            "One rule a line: a name such as www.a.example, all names below one such as .a.example, wildcards such as *.a.example, or a rule in JSON. A kind of name without a rule is not allowed.",
        ),
        MemberField::rules("names/dns_denied", "DNS names denied"),
        MemberField::lines("names/ip_allowed", "Addresses allowed").hint("One network a line: 10.0.0.0/8"),
        MemberField::lines("names/ip_denied", "Addresses denied"),
        MemberField::lines("names/uri_allowed", "URIs allowed, by prefix"),
        MemberField::lines("names/email_allowed", "Mailboxes allowed"),
        MemberField::set("key_types", "Key types", KEY_TYPES),
        MemberField::set("extended_key_usage", "Extended key usages", &["serverAuth", "clientAuth", "codeSigning", "emailProtection"]),
        MemberField::flag("requires_approval", "Another person approves each certificate"),
    ],
}];

/// A field that the forms of all issuers have.
const CONCURRENCY: MemberField =
    MemberField::number("config/limits/concurrency", "Maximum orders at the same time").hint("Empty: 16");
const PER_MINUTE: MemberField =
    MemberField::number("config/limits/per_minute", "Maximum orders a minute").hint("Empty: no limit");
const ROOTS: MemberField = MemberField::block("config/verify/roots", "Trust anchors (PEM)")
    .hint("Issued certificates must chain to one of them. Empty: not checked.");

pub(crate) const ISSUER: &[DocumentForm] = &[
    DocumentForm {
        name: "acme",
        label: "ACME",
        hint: "Let's Encrypt, ZeroSSL, Google Trust Services, a CA of your own with ACME",
        base: r#"{"config": {"type": "acme", "directory": "https://acme-v02.api.letsencrypt.org/directory", "challenges": ["http-01"]}}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::text("config/directory", "Directory URL").required(),
            MemberField::flag("config/terms_agreed", "I agree to the terms of service of this CA"),
            MemberField::lines("config/contact", "Contacts").hint("One URL a line: mailto:pki@example.com"),
            MemberField::set("config/challenges", "Challenges", &["http-01", "tls-alpn-01", "dns-01"])
                .hint("dns-01 needs a DNS provider: edit the issuer as JSON (config.dns01)."),
            MemberField::text("config/listen/http01", "Address for http-01")
                .hint("Where Bulla answers challenges: [::]:80"),
            MemberField::text("config/listen/tls_alpn01", "Address for tls-alpn-01").hint("[::]:443"),
            MemberField::text("config/profile", "Profile of the CA")
                .hint("Such as shortlived. Empty: the CA's default."),
            MemberField::text("config/eab/key_id", "Key ID of the external account"),
            MemberField::secret("config/eab/hmac_key", "HMAC key of the external account")
                .hint("base64url, from the CA"),
            CONCURRENCY,
            PER_MINUTE,
        ],
    },
    DocumentForm {
        name: "vault",
        label: "Vault or OpenBao",
        hint: "The PKI secrets engine",
        base: r#"{"config": {"type": "vault", "mount": "pki", "auth": {"method": "token"}}}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::text("config/url", "URL").hint("https://vault.example.com:8200").required(),
            MemberField::text("config/mount", "Path of the secrets engine").required(),
            MemberField::text("config/role", "Role").required(),
            MemberField::text("config/namespace", "Namespace"),
            MemberField::choice(
                "config/auth/method",
                "Authentication",
                &[("token", "Token"), ("approle", "AppRole")],
            ),
            MemberField::secret("config/auth/token", "Token"),
            MemberField::text("config/auth/role_id", "Role ID (AppRole)"),
            MemberField::secret("config/auth/secret_id", "Secret ID (AppRole)"),
            ROOTS,
            CONCURRENCY,
            PER_MINUTE,
        ],
    },
    DocumentForm {
        name: "step_ca",
        label: "step-ca",
        hint: "A Smallstep CA with a JWK provisioner",
        base: r#"{"config": {"type": "step_ca"}}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::text("config/url", "URL").hint("https://ca.example.com:9000").required(),
            MemberField::text("config/root_fingerprint", "Fingerprint of the root")
                .hint("step certificate fingerprint root_ca.crt")
                .required(),
            MemberField::text("config/provisioner/name", "Provisioner").required(),
            MemberField::text("config/provisioner/key_id", "Key ID of the provisioner")
                .hint("Empty: computed from the key"),
            MemberField::secret("config/provisioner/key", "Key of the provisioner")
                .hint("JWK, or encrypted key with its password"),
            MemberField::secret("config/provisioner/password", "Password of the key"),
            CONCURRENCY,
            PER_MINUTE,
        ],
    },
    DocumentForm {
        name: "webhook",
        label: "Webhook",
        hint: "An HTTP service of your own",
        base: r#"{"config": {"type": "webhook"}}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::text("config/url", "URL for orders").required(),
            MemberField::text("config/revoke_url", "URL for revocations")
                .hint("Empty: revocation is not supported."),
            MemberField::secret("config/secret", "Secret").hint("Key of the HMAC-SHA256 over requests"),
            ROOTS,
            CONCURRENCY,
            PER_MINUTE,
        ],
    },
    DocumentForm {
        name: "exec",
        label: "Program",
        hint: "A program that the configuration file of the server names: [programs.NAME]",
        base: r#"{"config": {"type": "exec"}}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::text("config/issue", "Program that issues")
                .hint("NAME of [programs.NAME]")
                .required(),
            MemberField::text("config/revoke", "Program that revokes"),
            MemberField::text("config/test", "Program for tests"),
            MemberField::number("config/seconds", "Timeout in seconds"),
            ROOTS,
            CONCURRENCY,
            PER_MINUTE,
        ],
    },
];

const ENVIRONMENTS: &str = "One a line. A certificate must meet all conditions that are set.";

pub(crate) const POLICY: &[DocumentForm] = &[DocumentForm {
    name: "policy",
    label: "Policy",
    hint: "",
    base: r#"{"policy": {"enforcement": "advisory"}}"#,
    read_only: &[],
    fields: &[
        NAME,
        MemberField::text("policy/description", "Description"),
        MemberField::flag("policy/applies_to/all", "Applies to all certificates"),
        MemberField::lines("policy/applies_to/environments", "Only these environments").hint(ENVIRONMENTS),
        MemberField::lines("policy/applies_to/teams", "Only these teams"),
        MemberField::lines("policy/applies_to/profiles", "Only these profiles"),
        MemberField::lines("policy/applies_to/issuers", "Only these issuers"),
        MemberField::choice(
            "policy/enforcement",
            "Enforcement",
            &[
                ("advisory", "List violations"),
                ("enforced", "List violations, and reject requests that violate it"),
            ],
        ),
        MemberField::lines("policy/rules/rule=allowed_domains/domains", "Allowed domains")
            .hint("One a line, with their subdomains"),
        MemberField::lines("policy/rules/rule=allowed_issuers/issuers", "Allowed issuers"),
        MemberField::set("policy/rules/rule=key_types/key_types", "Allowed key types", KEY_TYPES),
        MemberField::days("policy/rules/rule=max_lifetime/seconds", "Maximum lifetime in days"),
        MemberField::days(
            "policy/rules/rule=renewal_lead/seconds",
            "Renewed automatically at least this many days before expiry",
        ),
        MemberField::object("policy/rules/rule=required_owner", "An owner is required"),
        MemberField::object("policy/rules/rule=required_team", "A team is required"),
        MemberField::lines("policy/rules/rule=required_tags/tags", "Required tags"),
        MemberField::only_number("policy/renewal/renew_before/days", "Renew this many days before expiry")
            .hint("Empty: by the profile"),
        MemberField::flag("policy/requires_approval", "Another person approves each issuance and renewal"),
    ],
}];

pub(crate) const ALERT_RULE: &[DocumentForm] = &[DocumentForm {
    name: "rule",
    label: "Alert rule",
    hint: "",
    base: r#"{"rule": {"when": {"min_severity": "medium"}, "digest": false}}"#,
    read_only: &[],
    fields: &[
        NAME,
        MemberField::lines("rule/channels", "Channels").hint("Names of alert channels, one a line").required(),
        MemberField::choice(
            "rule/when/min_severity",
            "Minimum severity",
            &[("info", "info"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("critical", "critical")],
        ),
        MemberField::lines("rule/when/kinds", "Only these kinds").hint(
            "One a line: certificate, or certificate.expiring. An alert must meet all conditions that are set.",
        ),
        MemberField::lines("rule/when/teams", "Only these teams"),
        MemberField::lines("rule/when/owners", "Only these owners"),
        MemberField::lines("rule/when/environments", "Only these environments"),
        MemberField::lines("rule/when/issuers", "Only these issuers"),
        MemberField::lines("rule/when/profiles", "Only these profiles"),
        MemberField::flag("rule/digest", "Collect alerts in a daily digest"),
        MemberField::number("rule/escalate/after_seconds", "Escalate unacknowledged alerts after seconds"),
        MemberField::lines("rule/escalate/channels", "Channels for escalation"),
    ],
}];

const ENABLED: MemberField = MemberField::flag("enabled", "Enabled");

pub(crate) const ALERT_CHANNEL: &[DocumentForm] = &[
    DocumentForm {
        name: "webhook",
        label: "Webhook",
        hint: "An HTTP service of your own, with signed requests",
        base: r#"{"config": {"type": "webhook"}, "enabled": true}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::text("config/url", "URL").required(),
            MemberField::secret("config/secret", "Secret")
                .hint("At least 16 characters: the key of the HMAC-SHA256 over requests")
                .required(),
            ENABLED,
        ],
    },
    DocumentForm {
        name: "slack",
        label: "Slack",
        hint: "An incoming webhook",
        base: r#"{"config": {"type": "slack"}, "enabled": true}"#,
        read_only: &["config/host"],
        fields: &[NAME, MemberField::secret("config/url", "URL of the incoming webhook").required(), ENABLED],
    },
    DocumentForm {
        name: "teams",
        label: "Microsoft Teams",
        hint: "A workflow that posts to a channel",
        base: r#"{"config": {"type": "teams"}, "enabled": true}"#,
        read_only: &["config/host"],
        fields: &[NAME, MemberField::secret("config/url", "URL of the workflow").required(), ENABLED],
    },
    DocumentForm {
        name: "pagerduty",
        label: "PagerDuty",
        hint: "Events API v2",
        base: r#"{"config": {"type": "pagerduty"}, "enabled": true}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::secret("config/routing_key", "Routing key").required(),
            MemberField::text("config/url", "URL").hint("Empty: PagerDuty's own"),
            ENABLED,
        ],
    },
    DocumentForm {
        name: "opsgenie",
        label: "Opsgenie",
        hint: "Alert API v2",
        base: r#"{"config": {"type": "opsgenie"}, "enabled": true}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::secret("config/api_key", "API key").required(),
            MemberField::text("config/url", "URL").hint("Empty: Opsgenie's own"),
            ENABLED,
        ],
    },
    DocumentForm {
        name: "smtp",
        label: "Mail",
        hint: "An SMTP server",
        base: r#"{"config": {"type": "smtp", "security": "tls"}, "enabled": true}"#,
        read_only: &[],
        fields: &[
            NAME,
            MemberField::text("config/host", "Host").required(),
            MemberField::number("config/port", "Port")
                .hint("Empty: 465 with TLS, 587 with STARTTLS, 25 without"),
            MemberField::choice(
                "config/security",
                "Encryption",
                &[("tls", "TLS"), ("starttls", "STARTTLS"), ("none", "None")],
            ),
            MemberField::text("config/username", "User"),
            MemberField::secret("config/password", "Password"),
            MemberField::text("config/from", "Sender").required(),
            MemberField::lines("config/to", "Recipients").hint("One address a line").required(),
            ENABLED,
        ],
    },
];
