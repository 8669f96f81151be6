//! Certificate extensions (RFC 5280 section 4.2 and later RFCs).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use data_encoding::HEXLOWER;

use crate::certificate::Subtree;
use crate::der::{self, DerError, Element, Reader, tag};
use crate::faults::Faults;
use crate::{
    BasicConstraints, Certificate, DistinguishedName, GeneralName, KeyUsage, NameConstraints, oid, sct,
};

/// Maximum number of extensions that are read; further ones are ignored. Real certificates have up to fifteen.
pub(crate) const EXTENSIONS_MAX: usize = 64;
/// Maximum subject alternative names that are read. Public CAs allow 100 to 2,000. Even with the shortest names,
/// [`Certificate::DER_MAX`] allows no more than this.
const NAMES_MAX: usize = 10_000;
/// Maximum number of URLs, of policies and of key usages that are read from a certificate. Real certificates have one to five.
const ITEMS_MAX: usize = 64;
/// Maximum name constraints that are read. The longest lists, of governments and large companies, have hundreds.
const SUBTREES_MAX: usize = 2_000;

/// Parses the `[3]` field of a tbsCertificate into `certificate`.
pub(crate) fn read_all(field: Element<'_>, certificate: &mut Certificate, faults: &mut Faults) {
    let list = match field.inside().sequence() {
        Ok(list) => list,
        Err(error) => return faults.add(format!("extensions: {error}")),
    };
    let mut seen: Vec<&[u8]> = Vec::with_capacity(16);
    for extension in list {
        let extension = match extension.and_then(Extension::read) {
            Ok(extension) => extension,
            Err(error) => return faults.add(format!("extensions: {error}")),
        };
        if seen.len() == EXTENSIONS_MAX {
            return faults.add(format!("more than {EXTENSIONS_MAX} extensions: the rest is ignored"));
        }
        if seen.contains(&extension.id) {
            // RFC 5280 section 4.2 forbids repetition; the first extension is used.
            faults.add(format!("extension {} is repeated", der::oid_text(extension.id)));
            continue;
        }
        seen.push(extension.id);
        extension.apply_to(certificate, faults);
    }
}

pub(crate) struct Extension<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) critical: bool,
    pub(crate) value: &'a [u8],
}

/// Parses the extensions in `list` strictly: each must be well-formed and occur once (RFC 5280 section 4.2), and there are at most
/// [`EXTENSIONS_MAX`].
pub(crate) fn strict(list: Reader<'_>) -> Result<Vec<Extension<'_>>, DerError> {
    let mut out: Vec<Extension<'_>> = Vec::new();
    for element in list {
        let extension = Extension::read(element?)?;
        if out.len() == EXTENSIONS_MAX {
            return Err(DerError::Malformed("extensions: too many"));
        }
        if out.iter().any(|seen| seen.id == extension.id) {
            return Err(DerError::Malformed("extensions: an extension is repeated"));
        }
        out.push(extension);
    }
    Ok(out)
}

impl<'a> Extension<'a> {
    pub(crate) fn owned(&self) -> crate::build::Extension {
        crate::build::Extension::custom(der::oid_text(self.id), self.value.to_vec()).critical(self.critical)
    }
    pub(crate) fn read(element: Element<'a>) -> Result<Self, DerError> {
        let mut fields = element.inside();
        let id = fields.expect(tag::OID)?.content;
        let critical = fields.optional(tag::BOOLEAN)?.is_some_and(|b| b.content != [0]);
        let value = fields.expect(tag::OCTET_STRING)?.content;
        Ok(Self { id, critical, value })
    }

    fn apply_to(&self, certificate: &mut Certificate, faults: &mut Faults) {
        match self.take(certificate, faults) {
            Ok(true) => {}
            Ok(false) if self.critical => certificate.unknown_critical.push(der::oid_text(self.id)),
            Ok(false) => {}
            Err(error) => {
                let id = der::oid_text(self.id);
                faults.add(format!("extension {id}: {error}"));
                // Name constraints that cannot be read cannot be enforced.
                if self.critical || self.id == oid::NAME_CONSTRAINTS {
                    certificate.unknown_critical.push(id);
                }
            }
        }
    }

    /// Reads an extension into `cert`. Returns `false` if the extension is unknown.
    fn take(&self, cert: &mut Certificate, faults: &mut Faults) -> Result<bool, DerError> {
        let mut value = Reader::new(self.value);
        match self.id {
            oid::SUBJECT_ALT_NAME => cert.subject_alt_names = alt_names(value.sequence()?, faults)?,
            oid::BASIC_CONSTRAINTS => cert.basic_constraints = Some(basic_constraints(value.sequence()?)?),
            oid::KEY_USAGE => cert.key_usage = Some(key_usage(value.expect(tag::BIT_STRING)?)?),
            oid::EXTENDED_KEY_USAGE => cert.extended_key_usage = Some(oids(value.sequence()?)?),
            oid::NAME_CONSTRAINTS => cert.name_constraints = Some(name_constraints(value.sequence()?)?),
            oid::SUBJECT_KEY_ID => {
                cert.subject_key_id = Some(value.expect(tag::OCTET_STRING)?.content.to_vec());
            }
            oid::AUTHORITY_KEY_ID => {
                let key_id = value.sequence()?.optional(tag::context(0))?;
                cert.authority_key_id = key_id.map(|id| id.content.to_vec());
            }
            oid::AUTHORITY_INFO_ACCESS => access(value.sequence()?, cert)?,
            oid::CRL_DISTRIBUTION_POINTS => cert.crl_urls = crl_urls(value.sequence()?)?,
            oid::CERTIFICATE_POLICIES => cert.policies = policies(value.sequence()?)?,
            oid::SCT_LIST => {
                cert.embedded_scts = sct::count(value.expect(tag::OCTET_STRING)?.content);
            }
            oid::TLS_FEATURE => cert.must_staple = has_status_request(value.sequence()?),
            oid::NO_REV_AVAIL => {
                value.expect(tag::NULL)?;
                cert.no_revocation = true;
            }
            oid::CT_POISON => {
                cert.precertificate = true;
                return Ok(true);
            }
            oid::ISSUER_ALT_NAME
            | oid::POLICY_MAPPINGS
            | oid::POLICY_CONSTRAINTS
            | oid::FRESHEST_CRL
            | oid::INHIBIT_ANY_POLICY
            | oid::SUBJECT_INFO_ACCESS => return Ok(true),
            _ => return Ok(false),
        }
        if !value.is_empty() {
            faults.add(format!("extra bytes after extension {}", der::oid_text(self.id)));
        }
        Ok(true)
    }
}

pub(crate) fn alt_names(names: Reader<'_>, faults: &mut Faults) -> Result<Vec<GeneralName>, DerError> {
    let mut out = Vec::new();
    for name in names {
        if out.len() == NAMES_MAX {
            faults.add(format!("more than {NAMES_MAX} alternative names: the rest is ignored"));
            break;
        }
        out.push(general_name(name?, faults));
    }
    Ok(out)
}

// The tags of GeneralName (RFC 5280 section 4.2.1.6).
const RFC822_NAME: u8 = tag::context(1);
const DNS_NAME: u8 = tag::context(2);
const DIRECTORY_NAME: u8 = tag::context_constructed(4);
const URI: u8 = tag::context(6);
const IP_ADDRESS: u8 = tag::context(7);

fn general_name(name: Element<'_>, faults: &mut Faults) -> GeneralName {
    match name.tag {
        RFC822_NAME => GeneralName::Email(ascii(name, faults)),
        DNS_NAME => GeneralName::Dns(ascii(name, faults)),
        URI => GeneralName::Uri(ascii(name, faults)),
        IP_ADDRESS => address(name.content)
            .map_or_else(|| GeneralName::BadIp(HEXLOWER.encode(name.content)), GeneralName::Ip),
        DIRECTORY_NAME => match DistinguishedName::parse(name.content) {
            Ok(directory) => GeneralName::Directory(directory.text),
            Err(error) => {
                faults.add(format!("directoryName: {error}"));
                GeneralName::Other("directoryName".to_owned())
            }
        },
        0xa0 => GeneralName::Other("otherName".to_owned()),
        0xa3 => GeneralName::Other("x400Address".to_owned()),
        0xa5 => GeneralName::Other("ediPartyName".to_owned()),
        0x88 => GeneralName::Other("registeredID".to_owned()),
        other => GeneralName::Other(format!("tag {other:#04x}")),
    }
}

/// Returns the content of an IA5String. Non-ASCII bytes are a fault and become U+FFFD.
fn ascii(element: Element<'_>, faults: &mut Faults) -> String {
    if !element.content.is_ascii() {
        faults.add("an alternative name is not ASCII");
    }
    String::from_utf8_lossy(element.content).into_owned()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| IpAddr::V6(Ipv6Addr::from(v6)))
}

pub(crate) fn basic_constraints(mut fields: Reader<'_>) -> Result<BasicConstraints, DerError> {
    let ca = match fields.optional(tag::BOOLEAN)? {
        Some(ca) => ca.boolean()?,
        None => false,
    };
    let path_len = match fields.optional(tag::INTEGER)? {
        // A huge length is no limit in practice, and a negative one is invalid.
        Some(length) => {
            Some(u32::try_from(length.integer()?).map_err(|_| DerError::Malformed("pathLenConstraint"))?)
        }
        None => None,
    };
    fields.end()?;
    Ok(BasicConstraints { ca, path_len })
}

pub(crate) fn key_usage(bits: Element<'_>) -> Result<KeyUsage, DerError> {
    let bytes = bits.bits()?.0;
    let byte = |index: usize| u16::from(bytes.get(index).copied().unwrap_or(0).reverse_bits());
    Ok(KeyUsage(byte(0) | byte(1) << 8))
}

pub(crate) fn oids(list: Reader<'_>) -> Result<Vec<String>, DerError> {
    list.take(ITEMS_MAX)
        .map(|item| match item? {
            Element { tag: tag::OID, content, .. } => Ok(der::oid_text(content)),
            other => Err(DerError::Unexpected { expected: tag::OID, found: other.tag }),
        })
        .collect()
}

fn access(list: Reader<'_>, certificate: &mut Certificate) -> Result<(), DerError> {
    for description in list.take(ITEMS_MAX) {
        let mut fields = description?.inside();
        let method = fields.expect(tag::OID)?.content;
        let location = fields.any()?;
        if location.tag != URI {
            continue;
        }
        let url = String::from_utf8_lossy(location.content).into_owned();
        match method {
            oid::ACCESS_OCSP => certificate.ocsp_urls.push(url),
            oid::ACCESS_CA_ISSUERS => certificate.issuer_urls.push(url),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn crl_urls(points: Reader<'_>) -> Result<Vec<String>, DerError> {
    let mut urls = Vec::new();
    for point in points.take(ITEMS_MAX) {
        let Some(name) = point?.inside().optional(tag::context_constructed(0))? else {
            continue;
        };
        urls.extend(point_urls(name)?);
        urls.truncate(ITEMS_MAX);
    }
    Ok(urls)
}

/// Returns the URLs of a distributionPoint `[0] CHOICE { fullName [0] GeneralNames, … }`.
pub(crate) fn point_urls(point: Element<'_>) -> Result<Vec<String>, DerError> {
    let Some(full) = point.inside().optional(tag::context_constructed(0))? else {
        return Ok(Vec::new());
    };
    let mut urls = Vec::new();
    for location in full.inside().take(ITEMS_MAX) {
        let location = location?;
        if location.tag == URI {
            urls.push(String::from_utf8_lossy(location.content).into_owned());
        }
    }
    Ok(urls)
}

fn policies(list: Reader<'_>) -> Result<Vec<String>, DerError> {
    list.take(ITEMS_MAX).map(|policy| Ok(der::oid_text(policy?.inside().expect(tag::OID)?.content))).collect()
}

/// Returns whether the features contain status_request, the TLS extension for a stapled response (RFC 6066 section 8).
pub(crate) fn has_status_request(features: Reader<'_>) -> bool {
    const STATUS_REQUEST: i64 = 5;
    features.flatten().any(|feature| feature.integer() == Ok(STATUS_REQUEST))
}

fn name_constraints(mut fields: Reader<'_>) -> Result<NameConstraints, DerError> {
    let mut subtrees = |number| match fields.optional(tag::context_constructed(number))? {
        Some(list) => list.inside().enumerate().map(subtree).collect(),
        None => Ok(Vec::new()),
    };
    let constraints = NameConstraints { permitted: subtrees(0)?, excluded: subtrees(1)? };
    fields.end()?;
    Ok(constraints)
}

fn subtree((index, entry): (usize, Result<Element<'_>, DerError>)) -> Result<Subtree, DerError> {
    if index == SUBTREES_MAX {
        return Err(DerError::Malformed("nameConstraints: too many"));
    }
    let mut fields = entry?.inside();
    let base = fields.any()?;
    // RFC 5280 section 4.2.1.10 permits only minimum 0 and no maximum.
    fields.end()?;
    let text = || String::from_utf8_lossy(base.content).into_owned();
    Ok(match base.tag {
        DNS_NAME => Subtree::Dns(text()),
        RFC822_NAME => Subtree::Email(text()),
        URI => Subtree::Uri(text()),
        DIRECTORY_NAME => Subtree::Directory(base.content.into()),
        IP_ADDRESS => {
            let half = base.content.len() / 2;
            let (net, mask) = base.content.split_at(half);
            match (address(net), address(mask)) {
                (Some(net), Some(mask)) => Subtree::Ip(net, mask),
                _ => return Err(DerError::Malformed("nameConstraints: iPAddress")),
            }
        }
        _ => Subtree::Other,
    })
}
