//! Contents of a certificate, computed from the request, the profile, the CA and the time.

use std::net::IpAddr;

use x509::build::{self, CertificateSpec, Extension};
use x509::der::{self, Reader, tag};
use x509::{
    BasicConstraints, Certificate, DistinguishedName, GeneralName, KeyAlgorithm, KeyUsage, NameConstraints,
    PublicKey, SerialNumber, UnixTime,
};

use super::{IssueError, IssueRequest};
use crate::lint;
use crate::names::{NameRefusal, constraints};
use crate::profile::baseline::{self, ProposedCertificate};
use crate::profile::{CommonName, KeyUsageName, MustStaple, Preset, Profile};
use crate::tree::{Ca, Urls};

/// Maximum length of a common name in characters (RFC 5280 appendix A.1, ub-common-name).
const COMMON_NAME_MAX: usize = 64;
/// Maximum seconds between now and the start of validity.
const FUTURE_MAX_SECONDS: i64 = 31 * x509::DAY;
/// Minimum remaining lifetime in seconds of a CA that issues.
const REMAINING_LIFETIME_MIN_SECONDS: i64 = 60;
/// Maximum number of extensions in a request.
const EXTENSIONS_MAX: usize = 16;
/// Maximum length in bytes of an extension.
const EXTENSION_MAX: usize = 4_096;
/// OID of the policy "domain validated" (BR section 7.1.6.1).
const DOMAIN_VALIDATED: &str = "2.23.140.1.2.1";
/// OID of id-kp-timeStamping.
const TIME_STAMPING: &str = "1.3.6.1.5.5.7.3.8";
const ANY_PURPOSE: &str = "2.5.29.37.0";
const ORGANIZATIONAL_UNIT: &[u8] = &[0x55, 0x04, 11];

/// The contents of a certificate without its serial number and CRL shard.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) key: PublicKey,
    pub(super) names: Vec<GeneralName>,
    pub(super) subject: DistinguishedName,
    pub(super) not_before: UnixTime,
    pub(super) not_after: UnixTime,
    must_staple: bool,
    policies: Vec<String>,
    purposes: Vec<String>,
    extensions: Vec<Extension>,
}

impl Plan {
    /// Builds the plan, or returns the reason why the request is not allowed. `limits` are the name constraints of the CA and of
    /// all its parents.
    pub(super) fn make(
        request: &IssueRequest,
        profile: &Profile,
        ca: &Ca,
        limits: &[NameConstraints],
        now: UnixTime,
    ) -> Result<Self, IssueError> {
        if !ca.may_issue(now) {
            return Err(IssueError::NotIssuing(ca.name.clone()));
        }
        let key = PublicKey::parse(&request.spki).map_err(|error| IssueError::Key(error.to_string()))?;
        if let Some(reason) = profile.key_refusal(&key).or_else(|| lint::weak_key_reason(&key)) {
            return Err(IssueError::Key(reason));
        }
        let mut names: Vec<GeneralName> = Vec::with_capacity(request.names.len());
        for name in &request.names {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let refusals = profile.names.refusals(&names);
        if !refusals.is_empty() {
            return Err(IssueError::Names(refusals));
        }
        let subject = subject(request, profile, &names)?;
        if is_cloud_foundry_app(&subject) && !profile.subject.application_identities {
            return Err(IssueError::Subject(
                "the subject has the OU of an application (app:…), which this profile does not issue \
                 (subject.application_identities)"
                    .to_owned(),
            ));
        }
        if is_cloud_foundry_app(&subject) && profile.names.allows_any_host() {
            return Err(IssueError::Subject(
                "the subject has the OU of an application (app:…), which a profile for any host name does not issue: \
                 narrow its names.dns_allowed"
                    .to_owned(),
            ));
        }
        if let Some((name, reason)) =
            limits.iter().find_map(|limits| constraints::broken(limits, &subject, &names))
        {
            return Err(IssueError::Names(vec![NameRefusal { name, reason }]));
        }
        let (not_before, not_after) = dates(request, profile, ca, now)?;
        let plan = Self {
            must_staple: must_staple(request, profile)?,
            policies: policies(profile),
            purposes: purposes(profile, ca)?,
            extensions: requested_extensions(request, profile)?,
            key,
            names,
            subject,
            not_before,
            not_after,
        };
        plan.check_preset(profile, ca, now)?;
        Ok(plan)
    }

    fn check_preset(&self, profile: &Profile, ca: &Ca, now: UnixTime) -> Result<(), IssueError> {
        let Some(Preset::BaselineTls) = profile.preset else { return Ok(()) };
        let signature = ca.signer.algorithm();
        let proposal = ProposedCertificate {
            names: &self.names,
            common_names: &self.subject.common_names,
            organizational_unit: has_organizational_unit(&self.subject),
            key: &self.key,
            signature: &signature,
            // The check needs a serial number. Any number is valid for it, because generated serial numbers always have 126 random
            // bits.
            serial: &SerialNumber::from_random([0; 16]),
            not_before: self.not_before,
            not_after: self.not_after,
            purposes: &self.purposes,
            policies: &self.policies,
            crl: profile.urls.crl,
            ocsp: profile.urls.ocsp,
        };
        let violations = baseline::violations(&proposal, now);
        if violations.is_empty() { Ok(()) } else { Err(IssueError::Baseline(violations)) }
    }

    /// Returns the tbsCertificate with this serial number. `shard` is the number of the CRL that lists its revocation (0 for the
    /// single CRL of the CA).
    pub(super) fn tbs(
        &self,
        profile: &Profile,
        ca: &Ca,
        urls: Urls<'_>,
        serial: &SerialNumber,
        shard: u32,
    ) -> Vec<u8> {
        build::tbs_certificate(&CertificateSpec {
            serial,
            signature: ca.signer.algorithm(),
            issuer: &ca.certificate.subject.der,
            subject: &self.subject.der,
            not_before: self.not_before,
            not_after: self.not_after,
            spki: &self.key.spki,
            extensions: &self.all_extensions(profile, ca, urls, shard),
        })
    }

    fn all_extensions(&self, profile: &Profile, ca: &Ca, urls: Urls<'_>, shard: u32) -> Vec<Extension> {
        let mut all = Vec::with_capacity(12 + self.extensions.len());
        all.push(Extension::key_usage(key_usage(profile, &self.key)));
        if !self.purposes.is_empty() {
            // RFC 3161 section 2.3: the certificate of a time-stamping authority has only this purpose, and the extension is
            // critical.
            let stamps = matches!(self.purposes.as_slice(), [only] if only == TIME_STAMPING);
            all.push(Extension::extended_key_usage(&self.purposes).critical(stamps));
        }
        all.push(Extension::basic_constraints(BasicConstraints { ca: false, path_len: None }));
        // BR section 7.1.2.7.6 advises against a subject key identifier in subscriber certificates; RFC 5280 section 4.2.1.2
        // recommends it.
        if profile.preset.is_none() {
            all.push(Extension::subject_key_id(&build::key_id(&self.key.spki)));
        }
        all.push(Extension::authority_key_id(&ca.key_identifier()));
        let ocsp: Vec<String> = profile.urls.ocsp.then(|| urls.ocsp()).into_iter().collect();
        let issuer: Vec<String> = profile.urls.issuer.then(|| urls.certificate()).into_iter().collect();
        if !ocsp.is_empty() || !issuer.is_empty() {
            all.push(Extension::authority_info_access(&ocsp, &issuer));
        }
        if !self.names.is_empty() {
            all.push(Extension::subject_alt_names(&self.names).critical(self.subject.is_empty()));
        }
        if !self.policies.is_empty() {
            all.push(Extension::certificate_policies(&self.policies));
        }
        if profile.urls.crl {
            let url = if shard == 0 { urls.crl() } else { urls.crl_shard(shard) };
            all.push(Extension::crl_distribution_points(&[url]));
        }
        if self.must_staple {
            all.push(Extension::must_staple());
        }
        all.extend(self.extensions.iter().cloned());
        all
    }

    /// Lints the resulting certificate, with a placeholder signature.
    pub(super) fn dry_run(
        &self,
        tbs: &[u8],
        profile: &Profile,
        ca: &Ca,
        now: UnixTime,
    ) -> Result<Certificate, IssueError> {
        let der = build::signed(tbs, &ca.signer.algorithm(), &[0; 64]);
        let certificate =
            Certificate::parse(&der).map_err(|error| IssueError::Lint(vec![error.to_string()]))?;
        let required = lint::LintRequirements {
            for_servers: profile.is_for_servers(),
            publicly_trusted: profile.preset.is_some(),
        };
        let objections = lint::objections(&certificate, now, required);
        if objections.is_empty() {
            return Ok(certificate);
        }
        let text = |finding: &x509::Finding| {
            format!("{}: {} ({})", finding.rule.title, finding.evidence, finding.rule.code)
        };
        Err(IssueError::Lint(objections.iter().map(text).collect()))
    }
}

fn subject(
    request: &IssueRequest,
    profile: &Profile,
    names: &[GeneralName],
) -> Result<DistinguishedName, IssueError> {
    let rules = &profile.subject;
    let requested = request.subject.as_ref().filter(|subject| !subject.is_empty());
    let requested_names: &[String] = requested.map_or(&[], |subject| &subject.common_names);
    if let [_, _, ..] = requested_names {
        return Err(IssueError::Subject("the subject has more than one common name".to_owned()));
    }
    let requested_name = requested_names.first();
    if let Some(name) = requested_name {
        check_common_name(name, rules.common_name, names)?;
    }
    let spelled = requested_name.and_then(|name| spelling(name, names));
    if let (true, Some(requested)) = (rules.requested, requested) {
        check_emails_in_names(requested, names)?;
        return Ok(spelled.map_or_else(|| requested.clone(), |name| requested.with_common_name(&name)));
    }
    let common_name = match (rules.common_name, requested_name) {
        (CommonName::None, _) => None,
        (_, Some(name)) => Some(spelled.unwrap_or_else(|| name.clone())),
        (CommonName::FirstName, None) => default_common_name(names),
        (CommonName::Requested | CommonName::Any, None) => None,
    };
    let fixed = rules.fixed.as_deref().map(DistinguishedName::from_text).transpose();
    let fixed = fixed.map_err(|error| IssueError::Subject(error.to_string()))?;
    Ok(subject_with_common_name(fixed.as_ref(), common_name))
}

fn check_common_name(name: &str, rule: CommonName, names: &[GeneralName]) -> Result<(), IssueError> {
    let refuse = |reason: String| Err(IssueError::Subject(reason));
    if name.chars().count() > COMMON_NAME_MAX {
        return refuse(format!("the common name is longer than {COMMON_NAME_MAX} characters"));
    }
    if name.is_empty() || name.chars().any(char::is_control) {
        return refuse(format!("the common name {name:?} is empty or has control characters"));
    }
    let named = || spelling(name, names).is_some();
    match rule {
        // The common name is omitted without an error if it only repeats a name.
        CommonName::None if named() => Ok(()),
        CommonName::None => {
            refuse(format!("this profile does not allow a common name, but the request has {name:?}"))
        }
        CommonName::Any => Ok(()),
        CommonName::FirstName | CommonName::Requested if named() => Ok(()),
        CommonName::FirstName | CommonName::Requested => refuse(format!(
            "the common name {name:?} is not one of the requested names: add it to them, or leave it out"
        )),
    }
}

/// Checks that every email address of the subject is also a subject alternative name. Profiles and name constraints then apply to
/// the address (RFC 5280 section 4.1.2.6).
fn check_emails_in_names(subject: &DistinguishedName, names: &[GeneralName]) -> Result<(), IssueError> {
    let unnamed = subject.attributes().into_iter().find(|(kind, mailbox)| {
        let named = |name: &GeneralName| matches!(name, GeneralName::Email(known) if known.eq_ignore_ascii_case(mailbox));
        *kind == build::Attribute::Email && !names.iter().any(named)
    });
    match unnamed {
        None => Ok(()),
        Some((_, mailbox)) => Err(IssueError::Subject(format!(
            "the subject has the mailbox {mailbox}, which is not one of the requested names: add it to them (the profile's \
             names.email_allowed decides), or leave emailAddress out of the subject"
        ))),
    }
}

/// Finds the subject alternative name that equals `common_name` ignoring case, and returns its exact text. The common name must be
/// a byte-for-byte copy of it (BR section 7.1.4.3).
fn spelling(common_name: &str, names: &[GeneralName]) -> Option<String> {
    let address: Option<IpAddr> = common_name.parse().ok();
    let repeats = |known: &&GeneralName| match (known, address) {
        (GeneralName::Ip(known), Some(address)) => *known == address,
        (known, _) => known.to_string().eq_ignore_ascii_case(common_name),
    };
    names.iter().find(repeats).map(ToString::to_string)
}

/// Returns the first DNS name or IP address that is short enough for a common name.
fn default_common_name(names: &[GeneralName]) -> Option<String> {
    let text = |name: &GeneralName| match name {
        GeneralName::Dns(text) => Some(text.clone()),
        GeneralName::Ip(address) => Some(address.to_string()),
        _ => None,
    };
    names.iter().filter_map(text).find(|text| text.len() <= COMMON_NAME_MAX)
}

/// Returns the fixed attributes followed by the common name.
fn subject_with_common_name(
    fixed: Option<&DistinguishedName>,
    common_name: Option<String>,
) -> DistinguishedName {
    let name = common_name.map(|name| build::distinguished_name(&[(build::Attribute::CommonName, name)]));
    match (fixed, name) {
        (None, None) => DistinguishedName::empty(),
        (Some(fixed), None) => fixed.clone(),
        (None, Some(name)) => name,
        (Some(fixed), Some(name)) => {
            let content = |name: &DistinguishedName| {
                Reader::new(&name.der).sequence().map(|rest| rest.rest().to_vec()).unwrap_or_default()
            };
            let der = der::write(|w| {
                w.element(tag::SEQUENCE, &[content(fixed), content(&name)].concat());
            });
            DistinguishedName::parse(&der).unwrap_or(name)
        }
    }
}

/// Returns whether the credential store would identify the holder as an application of Cloud Foundry (`OU=app:UUID`).
fn is_cloud_foundry_app(subject: &DistinguishedName) -> bool {
    let units = subject.attributes();
    let mut units = units.iter().filter(|(kind, _)| *kind == build::Attribute::OrganizationalUnit);
    units.any(|(_, unit)| unit.trim_start().get(..4).is_some_and(|start| start.eq_ignore_ascii_case("app:")))
}

fn has_organizational_unit(name: &DistinguishedName) -> bool {
    let Ok(sets) = Reader::new(&name.der).sequence() else { return false };
    sets.flatten().flat_map(|set| set.inside()).flatten().any(|attribute| {
        attribute.inside().expect(tag::OID).is_ok_and(|oid| oid.content == ORGANIZATIONAL_UNIT)
    })
}

fn dates(
    request: &IssueRequest,
    profile: &Profile,
    ca: &Ca,
    now: UnixTime,
) -> Result<(UnixTime, UnixTime), IssueError> {
    let refuse = |reason: String| Err(IssueError::Dates(reason));
    let validity = &profile.validity;
    let earliest = now.plus(-validity.backdate_seconds);
    // The certificate must not be valid before its CA is.
    let not_before = request.not_before.unwrap_or(earliest).max(ca.certificate.not_before);
    if request.not_before.is_some_and(|requested| requested < earliest) {
        return refuse(format!(
            "notBefore would be before {earliest}, the earliest time this profile allows now"
        ));
    }
    if not_before > now.plus(FUTURE_MAX_SECONDS) {
        return refuse(format!(
            "notBefore would be more than {} days from now",
            FUTURE_MAX_SECONDS / x509::DAY
        ));
    }
    let longest = match profile.preset {
        Some(Preset::BaselineTls) => {
            validity.max_lifetime_seconds().min(baseline::lifetime_max_seconds(now.max(not_before)))
        }
        None => validity.max_lifetime_seconds(),
    };
    let life = match request.lifetime_seconds {
        None => validity.default_seconds.min(longest),
        Some(requested) if requested < 1 => {
            return refuse(format!("a lifetime of {requested} seconds is not valid: give 1 or more"));
        }
        Some(requested) if requested > longest => {
            return refuse(format!(
                "the requested lifetime is {requested} seconds; at most {longest} are allowed"
            ));
        }
        Some(requested) => requested,
    };
    let not_after = not_before.plus(life - 1).min(ca.certificate.not_after);
    if not_after < now.max(not_before).plus(REMAINING_LIFETIME_MIN_SECONDS - 1) {
        return refuse(format!(
            "the certificate would expire at {not_after}: too little lifetime is left until then, or until the CA \
             certificate expires"
        ));
    }
    Ok((not_before, not_after))
}

fn must_staple(request: &IssueRequest, profile: &Profile) -> Result<bool, IssueError> {
    match profile.must_staple {
        MustStaple::Always => Ok(true),
        MustStaple::OnRequest => Ok(request.must_staple),
        MustStaple::Never if request.must_staple => {
            Err(IssueError::Extension("this profile does not allow must-staple".to_owned()))
        }
        MustStaple::Never => Ok(false),
    }
}

fn policies(profile: &Profile) -> Vec<String> {
    let mut policies = profile.policies.clone();
    let says = policies.iter().any(|policy| policy.starts_with("2.23.140.1."));
    if profile.preset == Some(Preset::BaselineTls) && !says {
        policies.insert(0, DOMAIN_VALIDATED.to_owned());
    }
    policies
}

/// Returns the extended key usages of the profile. The CA must allow all of them.
fn purposes(profile: &Profile, ca: &Ca) -> Result<Vec<String>, IssueError> {
    let purposes: Vec<String> =
        profile.extended_key_usage.iter().map(|purpose| purpose.oid().to_owned()).collect();
    let Some(allowed) = &ca.certificate.extended_key_usage else { return Ok(purposes) };
    if allowed.iter().any(|oid| oid == ANY_PURPOSE) {
        return Ok(purposes);
    }
    match purposes.iter().find(|purpose| !allowed.contains(purpose)) {
        Some(purpose) => {
            Err(IssueError::Extension(format!("{} may not issue for the purpose {purpose}", ca.name)))
        }
        None => Ok(purposes),
    }
}

fn requested_extensions(request: &IssueRequest, profile: &Profile) -> Result<Vec<Extension>, IssueError> {
    let refuse = |reason: String| Err(IssueError::Extension(reason));
    if request.extensions.len() > EXTENSIONS_MAX {
        return refuse(format!(
            "{} extensions were requested; at most {EXTENSIONS_MAX} are allowed",
            request.extensions.len()
        ));
    }
    for (index, extension) in request.extensions.iter().enumerate() {
        if !profile.requested_extensions.contains(&extension.oid) {
            return refuse(format!("this profile does not allow the requested extension {}", extension.oid));
        }
        if extension.value.len() > EXTENSION_MAX {
            return refuse(format!(
                "extension {} has {} bytes; at most {EXTENSION_MAX} are allowed",
                extension.oid,
                extension.value.len()
            ));
        }
        if request.extensions[..index].iter().any(|before| before.oid == extension.oid) {
            return refuse(format!("extension {} appears more than once", extension.oid));
        }
    }
    Ok(request.extensions.clone())
}

/// Returns the key usage of the profile. If the profile has none, returns the usage that its extended key usages need for this type
/// of key (RFC 8446 section 4.4.2.2, RFC 5280 section 4.2.1.12).
fn key_usage(profile: &Profile, key: &PublicKey) -> KeyUsage {
    match &profile.key_usage {
        Some(names) => KeyUsageName::all(names),
        None if key.algorithm == KeyAlgorithm::Rsa && allows_key_encipherment(profile) => {
            KeyUsage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT)
        }
        None => KeyUsage(KeyUsage::DIGITAL_SIGNATURE),
    }
}

/// Returns whether an RSA key may get the usage keyEncipherment, which TLS 1.2 clients without forward secrecy and senders of email
/// need. Returns false for signing-only purposes. Also returns false with the preset of the Baseline Requirements, which advise
/// against keyEncipherment and digitalSignature in one certificate (section 7.1.2.7.11).
fn allows_key_encipherment(profile: &Profile) -> bool {
    const SIGNING: [&str; 3] = ["1.3.6.1.5.5.7.3.2", "1.3.6.1.5.5.7.3.3", TIME_STAMPING];
    let purposes = &profile.extended_key_usage;
    let signs_only = !purposes.is_empty() && purposes.iter().all(|known| SIGNING.contains(&known.oid()));
    profile.preset.is_none() && !signs_only
}
